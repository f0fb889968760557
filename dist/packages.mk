# What people install without a compiler: static programs, Debian packages, an OCI image, archives.
#
# All lies in target/packages. The same sources and tools give the same bytes, in any directory.

PACKAGES := target/packages
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCHITECTURES := x86_64 aarch64 armv7
DEBIAN_x86_64 := amd64
DEBIAN_aarch64 := arm64
DEBIAN_armv7 := armhf
TARGET_x86_64 := x86_64-unknown-linux-musl
TARGET_aarch64 := aarch64-unknown-linux-musl
# Debian's compiler for armhf links the C library of Debian, statically.
TARGET_armv7 := armv7-unknown-linux-gnueabihf
# Debian's packages are `$(DEBIAN_VERSION)`; the part after `-` counts packages of one version.
DEBIAN_VERSION ?= $(VERSION)-1
# The date in packages: that of the last commit, or of the changelog in an archive of the sources.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2> /dev/null || stat -c %Y CHANGELOG.md)
# Not for compilers: with it, each commit made every `make` compile zstd and all above it again. No
# source of a program uses the date.
packages package-files archive-% deb-%: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)

# zig compiles C code for every target. The program runs no Python.
ZIG := ziglang==0.15.2 cargo-zigbuild==0.24.1
CARGO_DEB := 3.8.0
# No file in a program names a directory of the machine that built it.
CARGO_HOME_USED := $(or $(CARGO_HOME),$(HOME)/.cargo)
REMAPPED = --remap-path-prefix=$(CURDIR)=flashsift --remap-path-prefix=$(CARGO_HOME_USED)=cargo \
  --remap-path-prefix=$(shell rustc --print sysroot)=rust
# lld, which comes with Rust, against musl, which does too: it keeps one copy of equal functions, and
# packs the addresses that a program corrects when it starts.
LINKED := -Clinker=rust-lld -Clinker-flavor=ld.lld -Clink-self-contained=yes \
  -Clink-args=-O2 -Clink-args=--icf=all -Clink-args=--pack-dyn-relocs=relr
# The program compresses at zstd's level 3, which never uses these.
UNUSED := $(foreach c,LAZY LAZY2 BTLAZY2 BTOPT BTULTRA,-DZSTD_EXCLUDE_$(c)_BLOCK_COMPRESSOR)
TARBALL = tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) -c

.PHONY: release check-release armhf-tests release-files packages packages-twice setup-packages setup-check-packages package-files check-packages

packages: setup-packages ## Static programs, Debian packages, OCI image and archives into target/packages
	rm -rf $(PACKAGES)/{bin,share,*.deb,*.tar*,SHA256SUMS}
	$(MAKE) --no-print-directory $(ARCHITECTURES:%=program-%)
	$(MAKE) --no-print-directory package-files
	$(MAKE) --no-print-directory $(ARCHITECTURES:%=archive-%) $(ARCHITECTURES:%=deb-%)
	dist/oci-image $(PACKAGES)/flashsift-$(VERSION)-oci.tar $(VERSION) \
	  $(foreach a,$(filter-out armv7,$(ARCHITECTURES)),$(DEBIAN_$(a))=$(PACKAGES)/bin/flashsift-$(a))
	cd $(PACKAGES) && sha256sum *.deb *.tar* > SHA256SUMS && ls -l *.deb *.tar* | awk '{ print $$5, $$9 }'

# All that a page of downloads needs.
RELEASE := target/release-$(VERSION)
SBOM := 0.5.9
release: ## All files of a release into target/release-VERSION, about twenty minutes
	$(MAKE) --no-print-directory packages wheel book
	$(MAKE) --no-print-directory release-files

release-files: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
release-files:
	@[[ "$$(target/tools/bin/cargo-cyclonedx --version 2> /dev/null)" == *" $(SBOM)" ]] \
	  || { echo "installing cargo-cyclonedx $(SBOM) into target/tools"; \
	    $(CARGO) install -q --locked --root target/tools cargo-cyclonedx@$(SBOM); }
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	cp $(PACKAGES)/*.deb $(PACKAGES)/*.tar* target/wheels/* dist/install.sh $(RELEASE)
	dist/sbom target/tools/bin/cargo-cyclonedx $(RELEASE)/flashsift-$(VERSION).cdx.json
	awk '/^## /{ if (found) exit; found = ($$2 == "$(VERSION)"); next } found' CHANGELOG.md > $(RELEASE)/NOTES.md
	@[[ -s $(RELEASE)/NOTES.md ]] || { echo "CHANGELOG.md has no section for $(VERSION)"; exit 1; }
	$(TARBALL) -C target --exclude=.doctrees --exclude=.buildinfo* book | gzip -9n > $(RELEASE)/flashsift-$(VERSION)-docs.tar.gz
	cd $(RELEASE) && sha256sum * > SHA256SUMS && ls -l | awk 'NF > 2 { print $$5, $$9 }'

# The systems on which packages are proved: Debian's releases for each of its architectures.
SYSTEMS ?= $(foreach r,bookworm trixie,$(foreach a,$(ARCHITECTURES),$(r)-$(DEBIAN_$(a))))
check-release: setup-check-packages ## Check a release: installed from each of its files, on clean systems
	checks/release $(RELEASE)
	checks/packages $(PACKAGES) $(SYSTEMS)
	$(MAKE) --no-print-directory armhf-tests
	rm -rf target/packaged && mkdir target/packaged && cp $(PACKAGES)/bin/flashsift-$$(uname -m) target/packaged/flashsift
	FLASHSIFT_PROGRAM=$(CURDIR)/target/packaged/flashsift checks/suite tests documents::commands_have

packages-twice: packages ## Packages once more in another directory, and compare them byte by byte
	twice=$$(mktemp -d /tmp/flashsift-twice.XXXXXX); trap 'rm -rf $$twice' EXIT; \
	git ls-files -z | xargs -0 cp --parents -pP -t $$twice; \
	mkdir -p $$twice/target; ln -s $(CURDIR)/target/{zig,tools} $$twice/target/; \
	$(MAKE) --no-print-directory -C $$twice packages SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH); \
	diff $(PACKAGES)/SHA256SUMS $$twice/$(PACKAGES)/SHA256SUMS && echo "the same bytes twice"

# Also in guests for arm64; the tests skip themselves without the programs of `make packages`.
check-packages: setup-check-packages ## Check what `make packages` built: installed in a clean Debian, run on arm64
	checks/packages $(PACKAGES)
	checks/suite tests arm64 a_package_upgrade

# The target's standard library, zig and cargo-deb; on Debian as root also what packages are checked
# with.
setup-packages: setup-build
	@for target in $(foreach a,$(ARCHITECTURES),$(TARGET_$(a))); do \
	  [[ -d $$(rustc --print target-libdir --target $$target) ]] || rustup target add $$target \
	    || { echo "the standard library for $$target is missing, and rustup cannot add it"; exit 1; }; done
	@$(call install,arm-linux-gnueabihf-gcc:gcc-arm-linux-gnueabihf /usr/arm-linux-gnueabihf/lib/libc.a:libc6-dev-armhf-cross)
	@command -v python3 > /dev/null || { echo "python3 is needed for packages and not installed"; exit 1; }
	@[[ -x target/zig/bin/cargo-zigbuild && target/zig/installed -nt dist/packages.mk ]] \
	  || { echo "installing $(ZIG) into target/zig"; python3 -m venv target/zig && target/zig/bin/pip install -q $(ZIG) && touch target/zig/installed; }
	@[[ "$$(target/tools/bin/cargo-deb --version 2> /dev/null)" == *" $(CARGO_DEB)" ]] \
	  || { echo "installing cargo-deb $(CARGO_DEB) into target/tools"; \
	    $(CARGO) install -q --locked --root target/tools cargo-deb@$(CARGO_DEB); }

setup-check-packages: setup-build
	@$(call install,file:file curl:curl lintian:lintian arch-test:arch-test mmdebstrap:mmdebstrap mkfs.f2fs:f2fs-tools qemu-aarch64-static:qemu-user-static qemu-system-aarch64:qemu-system-arm skopeo:skopeo unshare:util-linux)
	@if command -v apt-get > /dev/null && (( EUID == 0 )) && [[ ! target/guest/arm64/mount/initrd -nt $(GUEST)/init ]]; then \
	  echo "unpacking kernels for arm64 into target/guest/arm64"; $(GUEST)/kernel target/guest/arm64 arm64; fi

# io-uring's bindings have no check for 32 bits; the kernel's interface is the same there.
LINKED_armv7 := --cfg=io_uring_skip_arch_check -Clinker=arm-linux-gnueabihf-gcc -Ctarget-feature=+crt-static

armhf-tests program-armv7: export CC_armv7_unknown_linux_gnueabihf := arm-linux-gnueabihf-gcc

armhf-tests: setup-packages setup-check-packages ## The tests of models and traces with 32 bits, in qemu-user
	RUSTFLAGS="$(LINKED_armv7)" CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER=qemu-arm-static \
	  $(CARGO) test --locked -p flashsift-events -p flashsift-caches -p flashsift-pages \
	    -p flashsift-files -p flashsift-study -p flashsift-traces --lib --target $(TARGET_armv7) -- $(ARMHF_TESTS)

# One static program. zstd's and xz's C code is part of it.
program-armv7:
	RUSTFLAGS="$(REMAPPED) $(LINKED_armv7)" \
	  CFLAGS="-ffile-prefix-map=$(CARGO_HOME_USED)=cargo $(UNUSED)" \
	  env -u SOURCE_DATE_EPOCH $(CARGO) build --profile dist --locked -p flashsift --target $(TARGET_armv7)
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/$(TARGET_armv7)/dist/flashsift $(PACKAGES)/bin/flashsift-armv7

program-%:
	PATH=$(CURDIR)/target/zig/bin:$$PATH \
	  RUSTFLAGS="$(REMAPPED) $(LINKED)" CFLAGS="-ffile-prefix-map=$(CARGO_HOME_USED)=cargo $(UNUSED)" \
	  env -u SOURCE_DATE_EPOCH $(CARGO) zigbuild --profile dist --locked -p flashsift --target $(TARGET_$*)
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/$(TARGET_$*)/dist/flashsift $(PACKAGES)/bin/flashsift-$*

# Man pages and completions, which the program writes; units with Debian's path; texts.
package-files:
	rm -rf $(PACKAGES)/share
	mkdir -p $(PACKAGES)/share/{man,completions,units}
	program=$(PACKAGES)/bin/flashsift-$$(uname -m); \
	$$program man $(PACKAGES)/share/man; \
	for shell in bash zsh fish; do $$program completions $$shell > $(PACKAGES)/share/completions/$$shell; done
	for unit in $(UNITS); do sed 's#/usr/local/#/usr/#' dist/$$unit > $(PACKAGES)/share/units/$$unit; done
	cat dist/debian/copyright > $(PACKAGES)/share/copyright
	printf 'flashsift (%s) unstable; urgency=medium\n\n  * See changelog.gz in this directory.\n\n -- %s  %s\n' \
	  $(DEBIAN_VERSION) "$$(sed -n 's/^maintainer = "\(.*\)"/\1/p' crates/cli/Cargo.toml)" \
	  "$$(date -u -R -d @$(SOURCE_DATE_EPOCH))" | gzip -9n > $(PACKAGES)/share/changelog.Debian.gz
	gzip -9n < CHANGELOG.md > $(PACKAGES)/share/changelog.gz

# The program with everything that `make install` needs, for any Linux.
archive-%:
	name=flashsift-$(VERSION)-$*-linux; rm -rf $(PACKAGES)/$$name; \
	mkdir -p $(PACKAGES)/$$name; \
	cp $(PACKAGES)/bin/flashsift-$* $(PACKAGES)/$$name/flashsift; \
	cp -r $(PACKAGES)/share/{man,completions} README.md CHANGELOG.md LICENSE-* $(PACKAGES)/$$name/; \
	mkdir $(PACKAGES)/$$name/units; cp dist/*.service $(PACKAGES)/$$name/units/; \
	chmod -R u=rwX,go=rX $(PACKAGES)/$$name; \
	$(TARBALL) -C $(PACKAGES) $$name | gzip -9n > $(PACKAGES)/$$name.tar.gz; rm -r $(PACKAGES)/$$name

deb-%:
	umask 022; target/tools/bin/cargo-deb -q -p flashsift --no-build --no-strip --locked --profile dist \
	  --target $(TARGET_$*) --deb-version $(DEBIAN_VERSION) \
	  -o $(PACKAGES)/flashsift_$(DEBIAN_VERSION)_$(DEBIAN_$*).deb
