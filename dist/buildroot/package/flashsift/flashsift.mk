################################################################################
#
# flashsift
#
################################################################################

FLASHSIFT_VERSION = 0.2.0
FLASHSIFT_SITE = $(call github,flashsift,flashsift,v$(FLASHSIFT_VERSION))
FLASHSIFT_LICENSE = Apache-2.0 or MIT
FLASHSIFT_LICENSE_FILES = LICENSE-APACHE LICENSE-MIT
FLASHSIFT_CARGO_BUILD_OPTS = --package flashsift

# The sources are a workspace, of which one program is installed.
define FLASHSIFT_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 \
		$(@D)/target/$(RUSTC_TARGET_NAME)/$(if $(BR2_ENABLE_DEBUG),debug,release)/flashsift \
		$(TARGET_DIR)/usr/bin/flashsift
	ln -sf ../usr/bin/flashsift $(TARGET_DIR)/sbin/mount.fuse.flashsift
endef

define FLASHSIFT_INSTALL_INIT_SYSTEMD
	for unit in flashsift@.service flashsift-sleep.service; do \
		$(INSTALL) -D -m 0644 $(@D)/dist/$$unit \
			$(TARGET_DIR)/usr/lib/systemd/system/$$unit && \
		$(SED) 's,/usr/local/,/usr/,' \
			$(TARGET_DIR)/usr/lib/systemd/system/$$unit || exit 1; \
	done
endef

$(eval $(cargo-package))
