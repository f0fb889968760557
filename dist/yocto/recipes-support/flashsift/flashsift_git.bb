SUMMARY = "Decides what reaches flash"
DESCRIPTION = "Records file accesses, shows how each page cache design would treat them, and \
estimates time and wear on flash. Mounts a directory so that new files stay in RAM for a while."
HOMEPAGE = "https://github.com/flashsift/flashsift"
LICENSE = "Apache-2.0 OR MIT"
LIC_FILES_CHKSUM = "file://LICENSE-APACHE;md5=22a53954e4e0ec258dfce4391e905dac \
                    file://LICENSE-MIT;md5=0af910eb5267042674549b55fe1eee03"

SRC_URI = "git://github.com/flashsift/flashsift.git;protocol=https;branch=main"
SRCREV = "${AUTOREV}"
PV = "0.2.0+git"

inherit cargo cargo-update-recipe-crates systemd

# The crates of Cargo.lock. `bitbake -c update_crates flashsift` writes the file.
include flashsift-crates.inc

# The sources are a workspace, of which one program is installed.
CARGO_BUILD_FLAGS += "--package flashsift"

SYSTEMD_SERVICE:${PN} = "flashsift@.service flashsift-sleep.service"
SYSTEMD_AUTO_ENABLE = "disable"

do_install:append() {
    install -d ${D}${base_sbindir} ${D}${systemd_system_unitdir}
    ln -sr ${D}${bindir}/flashsift ${D}${base_sbindir}/mount.fuse.flashsift
    for unit in ${S}/dist/*.service; do
        sed 's#/usr/local/bin/#${bindir}/#' "$unit" > "${D}${systemd_system_unitdir}/${unit##*/}"
    done
}

FILES:${PN} += "${systemd_system_unitdir}"
RRECOMMENDS:${PN} += "kernel-module-fuse"
