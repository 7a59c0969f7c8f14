# jobs.mk -- the tests as a graph of jobs, so that make keeps every core busy. `test/run TIER` calls it.
#
#     check      what an edit needs: unit tests, goldens, the laws of the tree. No NVRTC, no sanitizer
#     test       all that a CPU can prove, in shares that cover: what CI runs
#     test-full  the same with every case, long fuzzing and torture at full scale: nightly
#
# Long jobs come first. test/tiers.mk says what a job is.

include test/tiers.mk

# ---- Builds: each is one make, whose compilers share this one's slots ----
IN      = $(MAKE) --no-print-directory -s -f Makefile
# The code that is shipped; a fifth of its compiler's time is debug information that no test reads.
AS_IT_IS = BUILD=$(BUILD) PRECOMPILED=1 CFLAGS='-O2 -g1'
# Sanitizers look at the library: what is undefined in a test proves nothing. Fakes and the emulator are no part of it.
# Where a pointer that is null, has wrapped or has left its object is used, AddressSanitizer sees it: that it came to be is for a full run.
# A test's own arrays, and what it reads of the library's memory, are looked at in the third of its files that the seed draws.
UNWATCHED := $(if $(FULL),,$(shell ls test/unit/*/*.c | awk -v seed="$$CODA_SEED" '(NR + seed) % 3'))
AS_ASAN = UNWATCHED='$(UNWATCHED)' UNCHECKED='$(if $(FULL),,null,pointer-overflow,object-size)' BUILD=$(BUILD)/asan PRECOMPILED=1 FAKED=$(BUILD) SAN=address,undefined CFLAGS='-Og -g1' TEST_CFLAGS='-O0 -fno-sanitize=undefined'
AS_TSAN = BUILD=$(BUILD)/tsan PRECOMPILED=1 FAKED=$(BUILD) SAN=thread CFLAGS='-Og -g1' TEST_CFLAGS=-O0

TORTURES := $(filter-out torture shim,$(basename $(notdir $(wildcard test/torture/*.c))))
FUZZERS  := $(basename $(notdir $(wildcard test/fuzz/fuzz_*.c)))
ASAN_TORTURES = damage store faults tiers
TSAN_TORTURES = cold store tiers
# After a fork() beside other threads the sanitizer's own allocator may be locked in the child.
PARTS_ASAN_faults = $(call drawn,cold,full warm,damaged)
PARTS_ASAN_tiers = $(call drawn,runs sealed everything moments,ends failures,exits servers)
WEAK_TORTURES = driver store hostile versions

.PHONY: built-unit built-rest built-asan built-tsan built-weak
built-unit:
	@+$(IN) $(AS_IT_IS) all doc locales $(BUILD)/unit fakes
built-rest: built-unit
	@+$(IN) $(AS_IT_IS) emulator torture-build examples perf-build $(BUILD)/terminal_test $(BUILD)/oom $(BUILD)/conformance/run
built-asan: built-unit
	@+$(IN) $(AS_ASAN) $(BUILD)/asan/unit $(BUILD)/asan/oom fuzzers $(ASAN_TORTURES:%=$(BUILD)/asan/torture/%)
built-tsan: built-unit
	@+$(IN) $(AS_TSAN) TESTS='$(THREADED_FILES)' $(BUILD)/tsan/unit $(TSAN_TORTURES:%=$(BUILD)/tsan/torture/%)
built-weak: built-rest
	@+$(IN) $(AS_IT_IS) $(BUILD)/weak/unit $(WEAK_TORTURES:%=$(BUILD)/weak/torture/%)

# ---- Unit tests: a job for each room, and for each room's kernels through NVRTC ----
ROOMS       := $(notdir $(patsubst %/,%,$(sort $(dir $(wildcard test/unit/*/test_*.c)))))
NVRTC_ROOMS := $(notdir $(patsubst %/,%,$(sort $(dir $(shell grep -l '"nvrtc' test/unit/*/test_*.c)))))
# All unit tests run in two locales, of which one has a decimal comma, and one a dotless i as well; other jobs run in C.
in_locale    = CODA_TEST_LOCALE=$(1) LOCPATH=$(CURDIR)/$(BUILD)/locale
GERMAN      := $(call in_locale,de_DE.UTF-8)
TURKISH     := $(call in_locale,tr_TR.UTF-8)
# The cache is tried on both: its unit tests and some of its torture on a disk, what else writes in memory (test/run).
on_disk      = TMPDIR=$$$${ON_DISK:-/tmp}
# Kernels that compiled well are kept: one that an edit leaves as it was is not proved again.
KERNELS     := $(CURDIR)/$(BUILD)/kernels
# The suites that start threads. A race ends a test's process with a status that Check sees. Rates of a machine take
# long under sanitizers, and start no threads of their own; nor do cases with the tag `alone`.
THREADED_FILES := $(sort $(shell grep -l pthread_create test/unit/*/test_*.c) test/unit/cpu/test_cpu.c)
THREADED    := $(patsubst test_%,%,$(basename $(notdir $(THREADED_FILES))))

$(eval $(call job,nvrtc-hopper,unit,env $(GERMAN) CODA_CACHE_DIR=$(KERNELS) CK_INCLUDE_TAGS=hopper $(BUILD)/unit))
# A fork costs as much as most tests: of a process that NVRTC is in a third of them, under AddressSanitizer more than most, and what
# that finds ends the process anyhow. Some rooms' tests want a process of their own: they raise signals, change the environment, or
# leave memory with NVRTC; of others the cases with the tags `processes` and `apart`. A full run, and `make unit`, have a process for each.
IN_ONE_PROCESS := $(filter-out base cache jit profile tune,$(ROOMS))
UNFORKED := $(if $(FULL),,$(filter-out emulator,$(IN_ONE_PROCESS)))
unforked  = $(if $(filter $(1),$(UNFORKED)),CK_FORK=no)
$(foreach r,$(NVRTC_ROOMS),$(eval $(call job,nvrtc-$(r),unit,$(if $(filter emit,$(r)),env CODA_CACHE_DIR=$(KERNELS),env) $(GERMAN) $(call unforked,$(r)) CK_INCLUDE_TAGS=nvrtc CK_EXCLUDE_TAGS="hopper apart" $(BUILD)/unit $(r))))
$(eval $(call job,nvrtc-apart,unit,env $(GERMAN) CK_INCLUDE_TAGS=apart $(BUILD)/unit))
$(foreach r,$(ROOMS),$(eval $(call job,unit-$(r),unit,env $(GERMAN) $(call unforked,$(r)) $(if $(filter cache,$(r)),$(on_disk)) CK_EXCLUDE_TAGS="nvrtc processes" $(BUILD)/unit $(r))))
$(eval $(call job,unit-processes,unit,env $(GERMAN) CK_INCLUDE_TAGS=processes $(BUILD)/unit))
$(foreach r,$(ROOMS),$(eval $(call job,asan-$(r),asan,env $(TURKISH) $(if $(filter $(r),$(IN_ONE_PROCESS)),CK_FORK=no) CK_EXCLUDE_TAGS="nvrtc broken processes $(if $(FULL),,rates)" $(BUILD)/asan/unit $(r))))
$(eval $(call job,asan-processes,asan,env CK_INCLUDE_TAGS=processes $(BUILD)/asan/unit))
$(foreach s,$(THREADED),$(eval $(call job,tsan-$(s),tsan,env CK_EXCLUDE_TAGS="nvrtc rates $(if $(FULL),,alone)" CK_RUN_SUITE=$(s) $(BUILD)/tsan/unit)))

UNIT  := $(ROOMS:%=unit-%) unit-processes
NVRTC := nvrtc-hopper $(NVRTC_ROOMS:%=nvrtc-%) nvrtc-apart
ASAN  := $(ROOMS:%=asan-%) asan-processes
TSAN  := $(THREADED:%=tsan-%)

# ---- The tree, and the library from outside ----
HOUSE := layers exports abi headers texts
$(foreach l,$(HOUSE),$(eval $(call job,$(l),unit,env $(if $(filter texts,$(l)),$(GERMAN)) MAKEFLAGS= $(IN) BUILD=$(BUILD) $(l))))
HOUSE += locale
$(eval $(call job,locale,rest,env MAKEFLAGS= $(IN) BUILD=$(BUILD) locale))
$(eval $(call job,lint,unit,test/house/lint.sh))
$(eval $(call job,cuda-abi,unit,env MAKEFLAGS= $(IN) BUILD=$(BUILD) cuda-abi))
$(eval $(call job,install,unit,test/system/install.sh $(BUILD)/install))
$(eval $(call job,abi-policy,unit,test/house/abi_policy.sh $(BUILD)/abi-policy))
$(eval $(call job,manual,unit,test/system/manual.sh $(BUILD)/manual))
$(eval $(call job,deb,unit,env MAKEFLAGS= $(IN) BUILD=$(BUILD) deb))
# As root with debootstrap and a network: the same on a system that has nothing else.
$(eval $(call job,fresh,unit,test/system/fresh.sh $(BUILD)/fresh))
$(eval $(call job,tool,rest,test/system/tool.sh $(BUILD)/tool))
# Pages of explain --html in a headless Chromium, where there is one.
$(eval $(call job,explained,rest,python3 test/system/explained.py $(BUILD)/coda $(wildcard examples/graphs/*.coda)))
$(eval $(call job,terminal,rest,sh -c 'mkdir -p $(BUILD)/terminal && $(BUILD)/terminal_test $(BUILD) $(BUILD)/terminal'))
$(eval $(call job,help,rest,test/system/help.sh $(BUILD)))
$(eval $(call job,readme,rest,env MAKEFLAGS= test/system/readme.sh $(BUILD) $(BUILD)/readme))
$(eval $(call job,guesses,rest,test/system/guesses.sh $(BUILD)/guesses))
$(eval $(call job,linear,unit,test/system/linear.sh $(BUILD)/linear))
$(eval $(call job,hijack,rest,test/system/hijack.sh $(BUILD)/hijack))
$(eval $(call job,demo,rest,test/system/demo.sh $(BUILD) $(BUILD)/demo))
EXAMPLES := mlp custom_map cross_entropy decode
$(foreach e,$(EXAMPLES),$(eval $(call job,example-$(e),rest,$(BUILD)/examples/$(e) $(if $(filter decode,$(e)),--cpu))))
# A few cases of every operator of the ONNX suite; `make conformance` runs them all.
$(eval $(call job,conformance,rest,$(BUILD)/conformance/run test/conformance/subset))
# The Python package, also on the emulator; beside NumPy, PyTorch and JAX, where python3 has them.
$(eval $(call job,python,rest,env MAKEFLAGS= $(IN) BUILD=$(BUILD) test-python))
SYSTEM := python install abi-policy manual tool explained terminal help guesses linear readme hijack demo $(EXAMPLES:%=example-%) conformance

# ---- Memory that runs out, random bytes ----
FUZZ_SECONDS ?= $(if $(FULL),60,1)
$(eval $(call job,oom,rest,$(BUILD)/oom $(if $(FULL),1,17)))
$(eval $(call job,oom-asan,asan,$(BUILD)/asan/oom $(if $(FULL),1,90)))
# Plans with symbols take ten times as many allocations, on the fake compiler and driver.
with_fakes = env CODA_CUDA_LIB=$(CURDIR)/$(BUILD)/fake CODA_LIBCUDA=$(CURDIR)/$(BUILD)/fake/libcuda.so.1 CODA_COMPILE_THREADS=2
$(eval $(call job,oom-shapes,rest,$(with_fakes) $(BUILD)/oom $(if $(FULL),7,397) shapes))
$(eval $(call job,oom-shapes-asan,asan,$(with_fakes) $(BUILD)/asan/oom $(if $(FULL),29,1997) shapes))
# Fuzzers start from the seed of the run, so that the same sources meet the same calls first.
$(foreach f,$(FUZZERS),$(eval $(call job,$(f),asan,$(BUILD)/asan/$(f) $(FUZZ_SECONDS) $$$$CODA_SEED)))

# ---- The kernel cache under torture; again where a sanitizer has something to see, and under names of four bits ----
$(foreach t,$(TORTURES),$(eval $(call job,torture-$(t),rest,$(if $(filter kill save tiers,$(t)),env $(on_disk)) $(BUILD)/torture/$(t) $(if $(FULL),--full))))
$(foreach t,$(ASAN_TORTURES),$(eval $(call job,torture-$(t)-asan,asan,$(BUILD)/asan/torture/$(t) $(PARTS_ASAN_$(t)))))
$(eval $(call job,torture-cold-tsan,tsan,$(BUILD)/tsan/torture/cold threads))
$(eval $(call job,torture-store-tsan,tsan,$(BUILD)/tsan/torture/store))
PARTS_TSAN_tiers = $(call drawn,runs moments,ends sealed,everything)
$(eval $(call job,torture-tiers-tsan,tsan,$(BUILD)/tsan/torture/tiers $(PARTS_TSAN_tiers)))
# Suites and programs that do not count entries.
$(eval $(call job,weak-unit,weak,env CK_EXCLUDE_TAGS=nvrtc $(BUILD)/weak/unit memo store bundle entry save trust tuning twins threads))
$(foreach t,$(WEAK_TORTURES),$(eval $(call job,weak-$(t),weak,$(BUILD)/weak/torture/$(t))))
TORTURE := $(TORTURES:%=torture-%) $(ASAN_TORTURES:%=torture-%-asan) $(TSAN_TORTURES:%=torture-%-tsan)
WEAK    := weak-unit $(WEAK_TORTURES:%=weak-%)

# ---- The GPU tests on an SM in software, and processes that start together on a driver that is not there ----
HERE     := $(CURDIR)/$(BUILD)
EMULATED := $(patsubst gpu_%,%,$(filter-out gpu_main gpu_tune gpu_cublaslt gpu_killed,$(basename $(notdir $(wildcard test/gpu/gpu_*.c)))))
on_emulator = env CODA_CACHE_DIR=$(BUILD)/emulator/cache CODA_CUDA_LIB=$(HERE)/emulator CODA_LIBCUDA=$(HERE)/emulator/libcuda.so.1
# What deals its work to SMs runs on as many as the seed draws: with fewer blocks than SMs a kernel ends otherwise than with more. The
# shapes of `dealt` grow with them, by fours.
DEALING   := attention attention_grad delta exchange gemm packed parts row_sums scan stream token together
DRAWN_SMS := $(shell n=$$CODA_SEED; for g in $(DEALING); do set -- 4 12 37 132; shift $$((n % 4)); echo $$g=$$1; n=$$((n + 1)); done) \
	dealt=$(word $(DRAWN),4 8 12)
sms_of     = $(patsubst $(1)=%,CODA_EMULATOR_SMS=%,$(filter $(1)=%,$(DRAWN_SMS)))
$(foreach g,$(EMULATED),$(eval $(call job,emulated-$(g),rest,$(on_emulator) $(call sms_of,$(g)) $(BUILD)/gpu_tests $(g))))
# A full run has each of the numbers.
numbers    = $(if $(filter dealt,$(1)),4 8 12,4 12 37 132)
on_number  = $(eval $(call job,emulated-$(1)-$(2),rest,$(on_emulator) CODA_EMULATOR_SMS=$(2) $(BUILD)/gpu_tests $(1)))emulated-$(1)-$(2)
ON_EACH   := $(if $(FULL),$(foreach g,$(DEALING) dealt,$(foreach n,$(call numbers,$(g)),$(call on_number,$(g),$(n)))))
$(eval $(call job,cold-start,rest,env CODA_CUDA_LIB=$(HERE)/fake CODA_LIBCUDA=$(HERE)/fake/libcuda.so.1 $(BUILD)/gpu_tests cold))
# Servers that share a cache, of which one after the other is killed; by CODA_KILLS=100 on a GPU, too.
$(eval $(call job,killed,rest,$(with_fakes) FAKE_COMPILE_US=20000 CODA_KILLS=$(if $(FULL),400,50) CODA_KILL_MS=20 $(BUILD)/gpu_tests killed))
$(eval $(call job,emulated-300-families,rest,$(on_emulator) CODA_FAMILIES=300 $(BUILD)/gpu_tests families))
$(eval $(call job,emulated-example,rest,$(on_emulator) LD_LIBRARY_PATH=$(HERE)/emulator $(BUILD)/examples/decode))
EMULATE := emulated-gemm $(filter-out emulated-gemm,$(EMULATED:%=emulated-%)) cold-start killed

# ---- Tiers ----
CHECK := $(UNIT) $(HOUSE) lint install conformance $(if $(wildcard $(CUDA_HOME)/include/cublasLt.h),cuda-abi)
# What waits for a build ends last: of that, what takes long begins first, and jobs of a second are left for the end.
LONG  := torture-faults-asan torture-tiers-asan torture-cold-tsan
TEST  := nvrtc-hopper $(filter-out nvrtc-hopper,$(NVRTC)) $(UNIT) python $(EMULATE) $(ASAN) $(TSAN) $(LONG) $(WEAK) $(filter-out python,$(SYSTEM)) \
	oom oom-asan oom-shapes oom-shapes-asan $(filter-out $(LONG),$(TORTURE)) $(HOUSE) lint cuda-abi $(FUZZERS)

.PHONY: check test test-full
check: $(call jobs,$(CHECK))
test: $(call jobs,$(TEST))
test-full: $(call jobs,$(TEST) $(ON_EACH) emulated-300-families emulated-example deb fresh)
