# tiers.mk -- what the jobs of all test/jobs.mk have in common: this one's, and that of examples/serving.
#
# $(call job,NAME,BUILDS,COMMAND) is a job that runs once built-BUILD of each of BUILDS is there; $(call jobs,NAMES) are
# what a tier waits for.

HOUSE_TEST := $(dir $(lastword $(MAKEFILE_LIST)))
BUILD ?= build
LOG   := $(BUILD)/test-log
FULL  := $(if $(filter test-full,$(MAKECMDGOALS)),1)
ifdef FULL
export CODA_FULL = 1
else
export CODA_SHARE = 7
endif
# Of three lists of parts a short run takes the one that its seed draws; a full run takes all.
drawn = $(if $(FULL),$(1) $(2) $(3),$($(DRAWN)))
DRAWN := $(shell echo $$((CODA_SEED % 3 + 1)))

# The leak checker at times dies on the thread-local memory of NVRTC, if it follows that. What is freed waits for 16 MB of
# others, not 256: a twentieth of the tests' time is pages that the system clears.
export ASAN_OPTIONS  = detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0:quarantine_size_mb=16
export UBSAN_OPTIONS = halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS  = suppressions=$(abspath $(HOUSE_TEST)tsan.supp)

define job
$(LOG)/$(strip $(1)).ok: | $(addprefix built-,$(2))
	@$(HOUSE_TEST)job $(strip $(1)) $(3)
JOBS_ALL += $(strip $(1))
endef
jobs = $(addprefix $(LOG)/,$(addsuffix .ok,$(1)))
