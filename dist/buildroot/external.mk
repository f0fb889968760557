include $(sort $(wildcard $(BR2_EXTERNAL_FLASHSIFT_PATH)/package/*/*.mk))
