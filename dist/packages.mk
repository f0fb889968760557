# What people install without a compiler: static programs, Debian packages, an OCI image, archives.
#
# All lies in target/packages. The same sources and tools give the same bytes, in any directory.

PACKAGES := target/packages
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCHITECTURES := x86_64 aarch64
DEBIAN_x86_64 := amd64
DEBIAN_aarch64 := arm64
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

.PHONY: packages packages-twice setup-packages setup-check-packages package-files check-packages

packages: setup-packages ## Static programs, Debian packages, OCI image and archives into target/packages
	rm -rf $(PACKAGES)/{bin,share,*.deb,*.tar*,SHA256SUMS}
	$(MAKE) --no-print-directory $(ARCHITECTURES:%=program-%)
	$(MAKE) --no-print-directory package-files
	$(MAKE) --no-print-directory $(ARCHITECTURES:%=archive-%) $(ARCHITECTURES:%=deb-%)
	dist/oci-image $(PACKAGES)/flashsift-$(VERSION)-oci.tar $(VERSION) \
	  $(foreach a,$(ARCHITECTURES),$(DEBIAN_$(a))=$(PACKAGES)/bin/flashsift-$(a))
	cd $(PACKAGES) && sha256sum *.deb *.tar* > SHA256SUMS && ls -l *.deb *.tar* | awk '{ print $$5, $$9 }'

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
	@for a in $(ARCHITECTURES); do target=$$a-unknown-linux-musl; \
	  [[ -d $$(rustc --print target-libdir --target $$target) ]] || rustup target add $$target \
	    || { echo "the standard library for $$target is missing, and rustup cannot add it"; exit 1; }; done
	@command -v python3 > /dev/null || { echo "python3 is needed for packages and not installed"; exit 1; }
	@[[ -x target/zig/bin/cargo-zigbuild && target/zig/installed -nt dist/packages.mk ]] \
	  || { echo "installing $(ZIG) into target/zig"; python3 -m venv target/zig && target/zig/bin/pip install -q $(ZIG) && touch target/zig/installed; }
	@[[ "$$(target/tools/bin/cargo-deb --version 2> /dev/null)" == *" $(CARGO_DEB)" ]] \
	  || { echo "installing cargo-deb $(CARGO_DEB) into target/tools"; \
	    $(CARGO) install -q --locked --root target/tools cargo-deb@$(CARGO_DEB); }

setup-check-packages: setup-build
	@$(call install,debootstrap:debootstrap file:file lintian:lintian mmdebstrap:mmdebstrap mkfs.f2fs:f2fs-tools qemu-aarch64-static:qemu-user-static qemu-system-aarch64:qemu-system-arm skopeo:skopeo unshare:util-linux)
	@if command -v apt-get > /dev/null && (( EUID == 0 )) && [[ ! target/guest/arm64/mount/initrd -nt $(GUEST)/init ]]; then \
	  echo "unpacking kernels for arm64 into target/guest/arm64"; $(GUEST)/kernel target/guest/arm64 arm64; fi

# One static program. zstd's and xz's C code is part of it.
program-%:
	PATH=$(CURDIR)/target/zig/bin:$$PATH \
	  RUSTFLAGS="$(REMAPPED) $(LINKED)" CFLAGS="-ffile-prefix-map=$(CARGO_HOME_USED)=cargo $(UNUSED)" \
	  env -u SOURCE_DATE_EPOCH $(CARGO) zigbuild --profile dist --locked -p flashsift --target $*-unknown-linux-musl
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/$*-unknown-linux-musl/dist/flashsift $(PACKAGES)/bin/flashsift-$*

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
	  --target $*-unknown-linux-musl --deb-version $(DEBIAN_VERSION) \
	  -o $(PACKAGES)/flashsift_$(DEBIAN_VERSION)_$(DEBIAN_$*).deb
