# Targets for people and for .ci/run. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
FLASHSIFT := target/release/flashsift
RUFF := 0.17.5
# Tests that boot another kernel.
GUEST := crates/cli/tests/guest
# Tests that open pages in a browser.
PAGES := crates/report/tests/browser

.PHONY: help demo demo-all test test-without-python check lint format prose docs book \
  python-tests-setup python-tests workloads-tests remedies-tests pages-setup pages soak bench rival fuzz deny wheel wheel-test setup setup-build build install uninstall clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

demo: build ## One recording: what was written, which cache writes less, and a page with figures
	@$(demo)

# Within 80 columns and 40 lines.
define demo
export COLUMNS=80; trace=testdata/browser.parquet; page=target/compare.html; \
echo "\$$ flashsift describe $$trace"; \
$(FLASHSIFT) describe -q $$trace | sed -n '3,/^$$/p'; \
options="--writeback evict --memory 4MiB --policy lru,arc,mglru,belady"; \
echo "\$$ flashsift compare $$trace \\"; echo "    $$options \\"; echo "    --report $$page"; \
$(FLASHSIFT) compare -q $$trace $$options --report $$page | sed '/^\* best/,/^$$/d'; \
echo; echo "With figures: file://$(CURDIR)/$$page"; \
echo "The other recordings and commands: make demo-all"
endef

demo-all: build ## Describe and compare every recording of testdata/, and write pages of one
	@for trace in testdata/*.parquet; do \
	  echo; echo "\$$ flashsift describe $$trace"; $(FLASHSIFT) describe $$trace 2>&1 | sed '/^Reads and writes/,$$d'; \
	  echo; echo "\$$ flashsift compare $$trace --writeback evict"; \
	  $(FLASHSIFT) compare $$trace --writeback evict; done
	@echo; for what in describe "compare --writeback evict"; do page=target/$${what%% *}.html; \
	  echo "\$$ flashsift $$what testdata/browser.parquet --report $$page"; \
	  $(FLASHSIFT) $$what testdata/browser.parquet --report $$page > /dev/null 2>&1; done
	@echo; echo "Open these in a browser: $(CURDIR)/target/describe.html $(CURDIR)/target/compare.html"

test: setup ## Everything that must pass: format, clippy, docs, tests
	@if command -v python3 > /dev/null; then checks/suite test; else $(MAKE) --no-print-directory test-without-python; fi

check: setup-build ## Format, clippy and unit tests of what differs from the last commit
	@checks/suite check

# The same without a table, one test program after the other.
test-without-python: format
	@echo "SKIPPED Python, pages, prose and the book: python3 is not installed"
	$(CARGO) clippy --workspace --all-targets --locked
	$(CARGO) test --workspace --locked --no-fail-fast -- --show-output

lint: setup format prose ## Format, clippy, ruff for Python, lint/prose; warnings are errors
	$(CARGO) clippy --workspace --all-targets --locked

format:
	$(CARGO) fmt --all --check

prose:
	if command -v python3 > /dev/null; then lint/prose --self-test && lint/prose; \
	else echo "not installed: python3; prose is not checked"; fi
	@[ -x .venv/bin/ruff ] || { python3 -m venv .venv && .venv/bin/pip install -q ruff==$(RUFF); } &> target/ruff.log \
	  || echo "SKIPPED ruff $(RUFF): it is not installable (see target/ruff.log); Python is not linted"
	if [ -x .venv/bin/ruff ]; then .venv/bin/ruff check -q --no-cache workloads workloads/record-* checks checks/promises checks/suite python benches/python docs experiments; fi

docs: setup-build book ## The book (target/book) and API documentation; a broken link is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

# The book needs no module: its pages on Python are made from the sources.
book:
	@[[ .venv-docs/installed -nt python/requirements-docs.txt ]] || { python3 -m venv .venv-docs \
	  && .venv-docs/bin/pip install -q --no-compile -r python/requirements-docs.txt && touch .venv-docs/installed; } &> target/book.log \
	  || echo "SKIPPED the book: python/requirements-docs.txt is not installable (see target/book.log)"
	if [ -e .venv-docs/installed ]; then .venv-docs/bin/sphinx-build -q -W --keep-going -b html docs target/book; fi

# `checks/suite` runs these beside the Rust tests, with the program and module that it has built.
DEBUG := $(or $(CARGO_TARGET_DIR),target)/debug

# The Python package in a virtual environment, for its own tests and for that of `flashsift train`.
python-tests-setup:
	@[[ .venv-train/installed -nt python/requirements.txt ]] || { python3 -m venv .venv-train \
	    && .venv-train/bin/pip install -q --no-compile -r python/requirements.txt && touch .venv-train/installed; } &> target/train.log \
	  || echo "SKIPPED Python: python/requirements.txt is not installable (see target/train.log)"

python-tests:
	@if [ -e .venv-train/installed ]; then \
	  FLASHSIFT=$(DEBUG)/flashsift PYTHONPATH=python \
	    .venv-train/bin/python -B -m pytest -q -p no:cacheprovider --durations 5 $(or $(TESTS),python/tests); fi

workloads-tests:
	@python3 -B -m unittest discover -s workloads/tests

# Settings that doctor advises, of three programs: `make soak` tries those of all.
REMEDIES := redis rsyslog nginx
remedies-tests:
	@checks/remedies --seconds 4 $(REMEDIES)

pages-setup:
	@if command -v npm > /dev/null; then cd $(PAGES); for pause in 5 30 60; do \
	    npm ci --no-audit --no-fund --loglevel=error && exit || sleep $$pause; done; exit 1; \
	else echo "SKIPPED pages in a browser: npm is not installed"; fi

pages:
	@if [ -d $(PAGES)/node_modules ]; then cd $(PAGES) && FLASHSIFT=$(abspath $(DEBUG))/flashsift npm test --silent; fi

# One abi3 wheel for each machine, with the program of the packages beside the module. zig links the
# module against the C library of manylinux2014, so that it runs on any Linux since 2014.
WHEELS ?= x86_64 aarch64
wheel: setup-packages ## Python wheels into target/wheels, for WHEELS (x86_64 and aarch64)
	@[[ .venv-wheel/installed -nt python/requirements-wheel.txt ]] || { python3 -m venv .venv-wheel \
	  && .venv-wheel/bin/pip install -q -r python/requirements-wheel.txt && touch .venv-wheel/installed; }
	rm -rf target/wheels
	for machine in $(WHEELS); do \
	  $(MAKE) --no-print-directory program-$$machine; \
	  rustup target add $$machine-unknown-linux-gnu 2> /dev/null || true; \
	  PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" python/wheel.py --target $$machine-unknown-linux-gnu \
	    --program $(PACKAGES)/bin/flashsift-$$machine --out target/wheels; done
	cd python && ../.venv-wheel/bin/python -c 'import backend; backend.build_sdist("../target/wheels")'

wheel-test: ## Tests of the wheels, each in a fresh environment; that for ARM64 in an emulator
	python/wheel.py --test target/wheels

soak: setup python-tests-setup ## Long forms of the tests; goes on where it stopped; PARTS="…"
	@$(call install,ffmpeg:ffmpeg firefox-esr:firefox-esr notmuch:notmuch feh:feh Xvfb:xvfb gdk-pixbuf-thumbnailer:libgdk-pixbuf2.0-bin)
	checks/suite soak $(PARTS)

bench: build ## Benchmarks into benchmarks/; BENCH_ARGS=--sizes, --readers, --mount, --saving …
	@$(call install,valgrind:valgrind)
	$(CARGO) build --release --locked -p flashsift-bench
	target/release/flashsift-bench $(BENCH_ARGS)

# Not part of `bench`: libCacheSim's package is fetched.
rival: build ## Caches of objects beside libCacheSim's package: agreement and speed; TRACES="…"
	@[[ .venv-rival/installed -nt benches/python/requirements-rival.txt ]] || { python3 -m venv .venv-rival \
	  && .venv-rival/bin/pip install -q --no-compile -r benches/python/requirements-rival.txt && touch .venv-rival/installed; }
	$(CARGO) build --release --locked --quiet -p flashsift-py
	cp target/release/lib_native.so python/flashsift/_native.abi3.so
	FLASHSIFT=$(FLASHSIFT) PYTHONPATH=python .venv-rival/bin/python -B benches/python/objects.py $(TRACES)

fuzz: ## Fuzz readers, cache and describe, FUZZ_SECONDS each (60); needs nightly Rust
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	fuzz/run --seconds $(or $(FUZZ_SECONDS),60) $(FUZZ)

deny: ## Licences, sources, duplicates and known faults of all dependencies, by deny.toml
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked
	$(CARGO) deny --all-features check licenses bans sources
	@if $(CARGO) deny fetch db &> target/advisories.log; then $(CARGO) deny --all-features check advisories; \
	else echo "SKIPPED the advisories of RustSec: their database cannot be fetched (target/advisories.log)"; fi

build: setup-build
	@[[ -e $(FLASHSIFT) ]] || echo "building flashsift: about four minutes on two cores"
	@$(CARGO) build --release --locked --quiet -p flashsift

# Programs for building, and further ones for tests. As root on Debian, missing programs are
# installed; elsewhere they are listed.
setup-build:
	@command -v $(CARGO) >/dev/null || { echo "flashsift is built with Rust: install it from https://rustup.rs"; exit 1; }
	@$(CARGO) --version >/dev/null || { echo "the toolchain of rust-toolchain.toml is missing: rustup toolchain install"; exit 1; }
	@$(call install,cc:gcc)
	@command -v cc >/dev/null || { echo "a C compiler (gcc) is needed and not installed"; exit 1; }
	@mkdir -p target

setup: setup-build
	@$(call install,strace:strace fio:fio blkparse:blktrace sqlite3:sqlite3 xz:xz-utils python3:python3 curl:curl unzip:unzip chromium:chromium git:git /usr/lib/python3/dist-packages/lmdb:python3-lmdb /usr/lib/python3/dist-packages/plyvel:python3-plyvel pip3:python3-pip node:nodejs npm:npm mkfs.ext4:e2fsprogs eatmydata:eatmydata fusermount3:fuse3 qemu-system-x86_64:qemu-system-x86 mkfs.f2fs:f2fs-tools mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs getfattr:attr setfacl:acl systemd-nspawn:systemd-container)
	@if command -v apt-get >/dev/null && (( EUID == 0 )); then checks/remedies --fetch $(REMEDIES); fi
	@if command -v apt-get >/dev/null && ! command -v promtool >/dev/null && [[ ! -x target/prometheus/usr/bin/promtool ]]; then \
	  echo "unpacking Prometheus of Debian into target/prometheus"; $(unpack-prometheus); fi
	@if (( EUID == 0 )) && [[ ! -e /run/udev ]]; then $(call as-systemd-does); fi
	@if command -v apt-get >/dev/null && (( EUID == 0 )) && [[ ! target/guest/mount/initrd -nt $(GUEST)/init ]]; then \
	  echo "unpacking kernels of Debian into target/guest"; \
	  $(GUEST)/kernel target/guest || echo "some kernels for guests are not available; tests that need them are skipped, by name"; \
	fi

# Unpacked rather than installed: the package would start a server.
define unpack-prometheus
( mkdir -p target/prometheus && cd target/prometheus && apt-get download -qq -o APT::Sandbox::User=root prometheus \
  && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb ) > target/prometheus.log 2>&1 \
  || echo "not available: Prometheus (see target/prometheus.log); its tests are skipped, by name"
endef

# Does what systemd and udev do at boot, where neither runs.
define as-systemd-does
[[ ! -c /dev/fuse ]] || chmod 666 /dev/fuse; \
[[ ! -d /sys/kernel/tracing || -e /sys/kernel/tracing/instances ]] || mount -t tracefs tracefs /sys/kernel/tracing || true
endef

# $(1): PROGRAM:PACKAGE …, or FILE:PACKAGE
define install
missing=(); for program in $(1); do \
  command -v $${program%%:*} >/dev/null || [[ $$program == /* && -e $${program%%:*} ]] || missing+=($${program##*:}); done; \
if (( $${#missing[@]} )); then \
  if command -v apt-get >/dev/null && (( EUID == 0 )); then \
    echo "installing $${missing[*]}"; mkdir -p target; \
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
      $${missing[*]} libc6-dev; } &> target/apt.log || { cat target/apt.log; exit 1; }; \
  else echo "not installed: $${missing[*]}; tests that need them are skipped, by name"; fi; \
fi
endef

PREFIX ?= /usr/local
UNITS := $(notdir $(wildcard dist/*.service))
# Not every shell expands `PREFIX=~/.local`.
override PREFIX := $(patsubst ~%,$(HOME)%,$(PREFIX))
# Below PREFIX.
COMPLETIONS := bash:share/bash-completion/completions/flashsift zsh:share/zsh/site-functions/_flashsift \
  fish:share/fish/vendor_completions.d/flashsift.fish
# Units of the machine and the helper of mount(8), which lies outside PREFIX, are root's.
FOR_ALL = $(or $(DESTDIR),$(filter 0,$(shell id -u)))

# `make install FLASHSIFT=PROGRAM` installs a program that is built already.
NOT_GIVEN := $(if $(filter file,$(origin FLASHSIFT)),build)
install: $(NOT_GIVEN) ## Install below PREFIX (/usr/local); as root also units and the mount helper
	install -D -m 755 $(FLASHSIFT) $(DESTDIR)$(PREFIX)/bin/flashsift
	$(FLASHSIFT) man $(DESTDIR)$(PREFIX)/share/man/man1
	for completion in $(COMPLETIONS); do file=$(DESTDIR)$(PREFIX)/$${completion#*:}; \
	  mkdir -p $${file%/*}; $(FLASHSIFT) completions $${completion%%:*} > $$file; done
	if [[ -n "$(FOR_ALL)" ]]; then \
	  install -d $(DESTDIR)/sbin $(DESTDIR)$(PREFIX)/lib/systemd/system; \
	  ln -sfn $(PREFIX)/bin/flashsift $(DESTDIR)/sbin/mount.fuse.flashsift; \
	  for unit in $(UNITS); do \
	    sed 's#/usr/local/#$(PREFIX)/#' dist/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; done; \
	else \
	  echo "not installed, as this needs root: the units of the machine, and the helper of mount(8)"; \
	  echo "for a unit of your own: flashsift mount --enable"; \
	fi

uninstall: ## Remove what `make install` installed
	rm -f $(DESTDIR)$(PREFIX)/bin/flashsift $(DESTDIR)$(PREFIX)/share/man/man1/flashsift{,-*}.1 \
	  $(foreach completion,$(COMPLETIONS),$(DESTDIR)$(PREFIX)/$(lastword $(subst :, ,$(completion))))
	[[ -z "$(FOR_ALL)" ]] || rm -f $(DESTDIR)/sbin/mount.fuse.flashsift \
	  $(UNITS:%=$(DESTDIR)$(PREFIX)/lib/systemd/system/%)

include dist/packages.mk

clean: ## Remove what was built
	$(CARGO) clean
