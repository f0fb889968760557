#!/bin/sh
# Installs flashsift for one user, without root, below ~/.local (or $PREFIX):
#
#     curl -fsSL https://github.com/flashsift/flashsift/releases/latest/download/install.sh | sh
#
# It downloads the archive for this machine, compares its SHA-256 with the release's SHA256SUMS, and
# copies the program, man pages and completions. FLASHSIFT_URL is another place of a release.
set -eu
url=${FLASHSIFT_URL:-https://github.com/flashsift/flashsift/releases/latest/download}
prefix=${PREFIX:-$HOME/.local}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

[ "$(uname -s)" = Linux ] || fail "flashsift runs on Linux, this is $(uname -s)"
# A 64-bit kernel may have 32-bit programs, as on some Raspberry Pi OS.
case $(uname -m)-$(getconf LONG_BIT 2> /dev/null || echo 64) in
  x86_64-64) machine=x86_64 ;;
  aarch64-64) machine=aarch64 ;;
  aarch64-32 | armv7l-* | armv8l-*) machine=armv7 ;;
  *) fail "there is no program for $(uname -m): build it from the sources, with cargo" ;;
esac
if command -v curl > /dev/null; then
  get() { curl -fsSL --retry 3 -o "$2" "$1"; }
elif command -v wget > /dev/null; then
  get() { wget -q -O "$2" "$1"; }
else
  fail "neither curl nor wget is installed"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"
get "$url/SHA256SUMS" SHA256SUMS || fail "$url/SHA256SUMS cannot be downloaded"
line=$(grep -E "  flashsift-[0-9.]+-$machine-linux\.tar\.gz\$" SHA256SUMS) \
  || fail "the release has no archive for $machine"
archive=${line##* }
get "$url/$archive" "$archive" || fail "$url/$archive cannot be downloaded"
echo "$line" | sha256sum -c - > /dev/null 2>&1 \
  || fail "the SHA-256 of $archive is not that of SHA256SUMS: nothing is installed"
tar xzf "$archive"
cd "${archive%.tar.gz}"
man=$prefix/share/man/man1 bash=$prefix/share/bash-completion/completions
mkdir -p "$prefix/bin" "$man" "$bash"
# Beside and renamed, so that a running program is not written to.
cp flashsift "$prefix/bin/.flashsift.new"
mv "$prefix/bin/.flashsift.new" "$prefix/bin/flashsift"
cp man/*.1 "$man"
cp completions/bash "$bash/flashsift"
"$prefix/bin/flashsift" --version
echo "installed below $prefix; to remove it: rm -f $prefix/bin/flashsift $man/flashsift*.1 $bash/flashsift"
case :$PATH: in *":$prefix/bin:"*) ;; *) echo "$prefix/bin is not in your PATH" ;; esac
