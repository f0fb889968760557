# Sourced by run.sh of each experiment: goes to the project's folder, where Python finds the modules
# of experiments/common and of workloads.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/experiments:$PWD/workloads${PYTHONPATH:+:$PYTHONPATH}

# Prints the path of the program: $FLASHSIFT, or else a build.
flashsift() {
  [ -n "${FLASHSIFT:-}" ] || cargo build --release --locked --quiet -p flashsift || exit
  realpath --canonicalize-existing "${FLASHSIFT:-${CARGO_TARGET_DIR:-target}/release/flashsift}"
}
