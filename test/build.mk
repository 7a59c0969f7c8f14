# test/build.mk -- unit tests, fuzzers, torture, emulator, GPU tests, and the laws of the tree. A part of the Makefile.

# A driver, and an NVRTC made of g++, over an SM in software (see test/emulator).
EMULATOR   = $(BUILD)/emulator/libcuda.so.1 $(BUILD)/emulator/libnvrtc.so.13 $(BUILD)/emulator/libnccl.so.2
TESTS     := $(sort $(wildcard test/unit/*/test_*.c))
# Test programs are linked by gold, if it is there: in half of ld's time. The library and the tool are not.
TEST_LDLIBS = $(LDLIBS) $(GOLD)
GOLD       := $(if $(shell command -v ld.gold 2>/dev/null),-fuse-ld=gold)
# References and random numbers. Sanitizers do not look at them, but at what the library makes of theirs; where they are in
# $FAKED, they come from there, all but those that ask which sanitizer there is, or have threads.
ASK_SAN   := $(shell grep -lE 'SANITIZE|pthread|stdatomic' test/support/*.c test/unit/*/*.c)
UTIL_DIR   = $(if $(and $(FAKED),$(SAN),$(filter-out $(ASK_SAN),$(1))),$(FAKED),$(BUILD))
UTIL_OBJ  := $(foreach f,$(wildcard test/support/*.c),$(call UTIL_DIR,$f)/$(f:.c=.o))
# What several unit tests share and needs Check, which the GPU tests do without.
CHECKS    := $(wildcard test/unit/*/check_*.c)
# Of these test/jobs.mk names some that come from $FAKED, too: $UNWATCHED.
UNIT_DIR   = $(if $(filter $(UNWATCHED),$(1)),$(call UTIL_DIR,$(1)),$(BUILD))
TEST_OBJ  := $(foreach f,$(TESTS) $(CHECKS),$(call UNIT_DIR,$f)/$(f:.c=.o)) $(BUILD)/test/unit/main.o $(UTIL_OBJ)
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

$(BUILD)/test/suites.h: $(TESTS)
	@mkdir -p $(@D)
	@for f in $(TESTS:test/unit/%.c=%); do echo "SUITE($${f%%/*}, $${f#*/test_})"; done > $@
$(BUILD)/test/unit/main.o: $(BUILD)/test/suites.h
$(BUILD)/test/%.o: ALL_CFLAGS += $(TEST_CFLAGS) -I$(BUILD)/test -Itest/support -Itest
# What these do themselves takes less time than to optimise it. References and random numbers lie in test/support.
$(foreach t,unit torture fuzz conformance,$(BUILD)/test/$(t)/%.o): ALL_CFLAGS += -O0
# A quarter of their compiler's time is Check's header: test/jobs.mk has GCC read it once, by the options of those that want it.
# ccache could not keep what comes of it.
ifneq ($(and $(PRECOMPILED),$(NO_EPILOGUES)),)
UNIT_OBJ := $(filter $(BUILD)/test/unit/%,$(TEST_OBJ))
$(UNIT_OBJ): $(BUILD)/test/unit/tests.h.gch
$(UNIT_OBJ): private ALL_CFLAGS += -include $(BUILD)/test/unit/tests.h -fpch-deps
# Nor are GPU tests and measurements optimised by test/jobs.mk, which times nothing.
$(BUILD)/test/gpu/%.o $(BUILD)/perf/%.o: ALL_CFLAGS += -Og
$(BUILD)/test/unit/tests.h.gch: test/support/tests.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -x c-header $< -o $@
endif
# Linked anew where other files are drawn, too, though none is newer.
DRAWN_OBJ := $(BUILD)/test/unwatched
$(if $(and $(FAKED),$(SAN)),$(shell mkdir -p $(BUILD)/test; echo '$(UNWATCHED)' | cmp -s - $(DRAWN_OBJ) || echo '$(UNWATCHED)' > $(DRAWN_OBJ)))
$(BUILD)/unit: $(TEST_OBJ) $(BUILD)/libcoda_internal.a $(wildcard $(DRAWN_OBJ)) | $(EMULATOR)
	$(CC) $(filter %.o %.a,$^) -o $@ $(CHECK_LIBS) $(TEST_LDLIBS)
# The same, and the cache's torture, under names of four bits: see test/weak.
$(BUILD)/weak/unit: $(TEST_OBJ) $(BUILD)/test/shim.o $(BUILD)/test/weak/name.o $(BUILD)/libcoda_internal.a | $(EMULATOR)
	@mkdir -p $(@D)
	$(CXX) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(CHECK_LIBS) $(TEST_LDLIBS)
unit: $(BUILD)/unit $(BUILD)/coda ## the unit tests alone (SUITES='cache plan': of these rooms or suites)
	$(BUILD)/unit $(SUITES)
# Locales with a decimal comma and with a dotless i, for LOCPATH: they are compiled from glibc's sources, without root. The order
# of an alphabet, which nothing here asks for, would be two thirds of the time.
NO_ORDER := /^LC_COLLATE/,/^END LC_COLLATE/{//!d; s/^LC_COLLATE/&\ncopy "POSIX"/}
LOCALES := $(addprefix $(BUILD)/locale/,de_DE.UTF-8 tr_TR.UTF-8)
locales: $(LOCALES)
$(LOCALES):
	@mkdir -p $(@D)
	@sed '$(NO_ORDER)' /usr/share/i18n/locales/$(basename $(@F)) | localedef -f UTF-8 $@.part || \
	    { echo '$(@F) cannot be made: .ci/deps installs what is missing'; exit 1; }
	@mv $@.part $@
bless: $(BUILD)/unit ## rewrites test/golden/*.coda: read the diff before you commit it
	CODA_BLESS=1 CK_RUN_SUITE=golden $(BUILD)/unit
check: ## what an edit needs, in a minute or two: no NVRTC, no sanitizer
	@BUILD=$(BUILD) test/run check
test: deps ## all that a CPU can prove (AGAIN=1: what failed the last time)
	@BUILD=$(BUILD) test/run test
bless-seconds: ## writes test/job-seconds anew, from the last `make test`: on a machine that does nothing else
	@{ echo '# seconds of processors that a job of make test takes: make bless-seconds'; cat $(BUILD)/test-log/.seconds; } > test/job-seconds.part
	@mv test/job-seconds.part test/job-seconds
test-full: deps ## the same with every case, long fuzzing and torture at full scale (hours)
	@BUILD=$(BUILD) test/run test-full

# Programs beside the unit tests. Fuzzers: fuzz_NAME SECONDS [SEED].
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/%,$(wildcard test/fuzz/fuzz_*.c))
SECONDS ?= 600
SEED    ?= $(shell date +%s)

$(BUILD)/test/util.a: $(UTIL_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/fuzz_%: $(BUILD)/test/fuzz/fuzz_%.o $(BUILD)/test/util.a $(BUILD)/libcoda_internal.a
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(TEST_LDLIBS)
# Each call that coda.h declares.
$(BUILD)/test/calls.h: include/coda.h include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h test/house/exports.sh
	@mkdir -p $(@D)
	@CC=$(CC) test/house/exports.sh | sed 's/.*/CALL(&)/' > $@
$(BUILD)/test/fuzz/fuzz_api.o $(BUILD)/test/unit/api/test_words.o: $(BUILD)/test/calls.h
# The tool's main under another name, and the rest of the tool.
$(BUILD)/test/tool_main.o: examples/coda/tool.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Iexamples -Dmain=tool_main -Wno-missing-prototypes -c $< -o $@
$(BUILD)/fuzz_args: $(BUILD)/test/tool_main.o $(filter-out %/tool.o,$(TOOL_OBJ))
fuzzers: $(FUZZERS)
# Every text that the library makes of the tests' graphs and programs, as digests.
$(BUILD)/texts: $(BUILD)/test/house/texts.o $(BUILD)/test/house/texts_made.o $(BUILD)/test/util.a $(BUILD)/libcoda_internal.a
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(TEST_LDLIBS)
texts: $(BUILD)/texts perf-build examples ## plans and kernels have the texts that they had: test/golden/texts.sha256
	@BUILD=$(BUILD) test/house/texts.sh
bless-texts: $(BUILD)/texts perf-build examples ## writes it anew, where texts are meant to change
	@BUILD=$(BUILD) test/house/texts.sh bless
fuzz: ## SECONDS=600 of each fuzzer, with address and undefined behaviour sanitizers
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/asan SAN=address,undefined CFLAGS='-O1 -g' fuzzers
	@for f in $(FUZZERS:$(BUILD)/%=$(BUILD)/asan/%); do $$f $(SECONDS) $(SEED) || exit 1; done

# The ONNX operator suite as coda_* calls: all of it, made from the package `onnx`, or the part that is committed.
CONFORMANCE_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/conformance/*.c))
$(BUILD)/test/conformance/%.o: ALL_CFLAGS += -Itest/conformance
$(BUILD)/conformance/run: $(CONFORMANCE_OBJ) $(BUILD)/libcoda.a
	@mkdir -p $(@D)
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(TEST_LDLIBS)
$(BUILD)/conformance/onnx.report: $(wildcard test/conformance/*.py) test/conformance/requirements.txt
	@mkdir -p $(@D)
	@build/conformance/venv/bin/python test/conformance/generate.py $(@:.report=) $(GENERATE_ARGS)
conformance: ## the ONNX operator suite as coda_* calls: what passes, and what cannot be expressed (minutes)
	@.ci/deps conformance
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(BUILD)/conformance/run $(BUILD)/conformance/onnx.report
	@$(BUILD)/conformance/run $(BUILD)/conformance/onnx $(CONFORMANCE_ARGS) > $(BUILD)/conformance/results; status=$$?; \
	    grep -v '^  *test_' $(BUILD)/conformance/onnx.report; cat $(BUILD)/conformance/results; exit $$status
conformance-subset: # writes the part that is committed anew
	@.ci/deps conformance
	@$(MAKE) --no-print-directory -s -B $(BUILD)/conformance/onnx.report GENERATE_ARGS='--subset test/conformance/subset'

# Programs on a terminal, which a pseudo-terminal is.
$(BUILD)/test/system/terminal.o: ALL_CFLAGS += -Itest/fake
$(BUILD)/terminal_test: $(BUILD)/test/system/terminal.o $(BUILD)/test/fake/image.o | $(BUILD)/fake/libnvrtc.so.13
	$(CC) $^ -o $@ $(TEST_LDLIBS) -lutil

# Run by hand.
$(BUILD)/bench_%: $(BUILD)/test/unit/cache/bench_%.o $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(TEST_LDLIBS)

# Every N-th allocation fails.
WRAP_ALLOCATORS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup,--wrap=aligned_alloc
$(BUILD)/oom: $(BUILD)/test/fuzz/oom.o $(BUILD)/test/fuzz/oom_shapes.o $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(TEST_LDLIBS) $(WRAP_ALLOCATORS)

# The kernel cache under torture, with a compiler, a driver and a libc that misbehave as told.
FAKE_CFLAGS = -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -pthread $(WARN) -Ijit -Iinclude -Itest/fake
FAKES       = $(addprefix $(BUILD)/fake/,libnvrtc.so.13 libcuda.so.1 shim.so)
TORTURES   := $(patsubst test/torture/%.c,$(BUILD)/torture/%,\
	$(filter-out test/torture/torture.c test/torture/shim.c,$(wildcard test/torture/*.c)))

$(BUILD)/fake/libnvrtc.so.13: test/fake/nvrtc.c test/fake/image.c test/fake/fake.h
$(BUILD)/fake/libcuda.so.1: test/fake/cuda.c test/fake/time.c test/fake/image.c test/fake/fake.h jit/driver.h
$(BUILD)/fake/shim.so: test/torture/shim.c test/torture/shim.h
$(BUILD)/dry/libcuda.so.1: test/fake/dry.c test/fake/time.c test/fake/image.c test/fake/dry.h test/fake/fake.h jit/driver.h
$(FAKES) $(BUILD)/dry/libcuda.so.1:
	@mkdir -p $(@D)
	$(make_fake)
# No sanitizer looks at them: a build with one takes those of the folder $FAKED.
make_fake = $(if $(FAKED),cp -p $(@:$(BUILD)/%=$(FAKED)/%) $@,$(link_fake))
comma := ,
link_fake = $(CC) $(FAKE_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--build-id -Wl,--no-undefined $(patsubst %,-Wl$(comma)--version-script=%,$(filter %.map,$^)) $(filter %.c,$^) -o $@ -ldl -lm
fakes: $(FAKES)
$(BUILD)/fuzz_api: | $(FAKES)
$(BUILD)/test/torture/%.o: ALL_CFLAGS += -Itest/fake -Itest/torture
# Half of the linker's time is what a program does not call.
ONLY_CALLED := $(if $(SAN),,-Wl$(comma)--gc-sections)
$(BUILD)/torture/%: $(BUILD)/test/torture/%.o $(BUILD)/test/torture/torture.o $(BUILD)/test/fake/image.o \
		$(BUILD)/libcoda_internal.a $(FAKES)
	@mkdir -p $(@D)
	$(CC) $(filter %.o,$^) -o $@ $(ONLY_CALLED) $(BUILD)/fake/shim.so $(BUILD)/libcoda_internal.a -Wl,-rpath,'$$ORIGIN/../fake' $(TEST_LDLIBS)
$(BUILD)/torture/hot: LDLIBS += $(WRAP_ALLOCATORS) -Wl,--wrap=pthread_mutex_lock
$(BUILD)/weak/torture/%: $(BUILD)/test/torture/%.o $(BUILD)/test/torture/torture.o $(BUILD)/test/fake/image.o \
		$(BUILD)/test/weak/name.o $(BUILD)/libcoda_internal.a $(FAKES)
	@mkdir -p $(@D)
	@ln -sfn ../fake $(@D)/../fake && ln -sfn ../coda $(@D)/../coda
	$(CC) $(filter %.o,$^) -o $@ $(ONLY_CALLED) $(BUILD)/fake/shim.so $(BUILD)/libcoda_internal.a -Wl,-rpath,'$$ORIGIN/../../fake' $(TEST_LDLIBS)
.SECONDARY: $(TORTURES:$(BUILD)/%=$(BUILD)/test/%.o)
torture-build: $(TORTURES)
torture: ## the kernel cache under kills, faults, damage, races and hostile folders, at full scale
	@$(MAKE) --no-print-directory -s -j$(JOBS) all torture-build
	@for t in $(TORTURES); do $$t --full || bad=1; done; exit $${bad:-0}

# The SM in software.
EMULATOR_H   := $(wildcard test/emulator/*.h test/emulator/ptx/*.cuh) test/shim/twins.h
EMULATOR_SRC := $(filter-out test/emulator/nvrtc.c,$(wildcard test/emulator/*.c))

$(BUILD)/emulator/libcuda.so.1: $(EMULATOR_SRC) jit/driver.h
$(BUILD)/emulator/libnvrtc.so.13: test/emulator/nvrtc.c
$(BUILD)/emulator/libnccl.so.2: test/fake/nccl.c jit/nccl_abi.h
$(EMULATOR): $(EMULATOR_H) test/emulator/exports.map
	@mkdir -p $(@D)
	$(make_fake)
emulator: $(EMULATOR) $(BUILD)/gpu_tests ## the GPU tests' machine without a GPU; EMULATE='gemm rows' runs these on it
	@[ -z "$(EMULATE)" ] || CODA_CUDA_LIB=$(abspath $(BUILD))/emulator CODA_LIBCUDA=$(abspath $(BUILD))/emulator/libcuda.so.1 \
	    $(BUILD)/gpu_tests $(EMULATE)

# GPU tests: no Check, so that they run where only a driver and a toolkit are. Each test/gpu/gpu_NAME.c
# defines int gpu_NAME(void), the number of its failures.
GPU_TESTS := $(filter-out test/gpu/gpu_main.c,$(sort $(wildcard test/gpu/gpu_*.c)))
GPU_OBJ    = $(GPU_TESTS:%.c=$(BUILD)/%.o) $(BUILD)/test/gpu/gpu_main.o $(BUILD)/test/gpu/codes.o $(BUILD)/test/gpu/sums.o $(BUILD)/test/util.a
GPU_STAMP ?= test/gpu.stamp
DIGEST     = find include lib jit primitives cache test/gpu -type f | LC_ALL=C sort | \
	xargs sha256sum | sha256sum | cut -c-64

$(BUILD)/test/gpu_list.h: $(GPU_TESTS)
	@mkdir -p $(@D)
	@for f in $(GPU_TESTS:test/gpu/gpu_%.c=%); do echo "GPU_TEST($$f)"; done > $@
$(BUILD)/test/gpu/gpu_main.o: $(BUILD)/test/gpu_list.h
$(BUILD)/gpu_tests: LDLIBS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc # gpu_ends.c
$(BUILD)/gpu_tests: $(GPU_OBJ) $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(TEST_LDLIBS)
# Kernels are kept in a directory of their own, and come there from files that were made before, with the seed that
# random tests had then. Caches that tests open find them by $CODA_BUNDLES.
GPU_KERNELS ?= $(BUILD)/gpu-kernels
GPU_CACHE   := $(abspath $(BUILD))/gpu-cache
GPU_SEED     = $(or $(CODA_SEED),$(shell cat $(GPU_KERNELS)/seed 2>/dev/null),$(shell echo $$((0x$$($(DIGEST) | cut -c-7)))))
with_kernels = CODA_SEED=$(GPU_SEED) BUILD=$(BUILD) test/system/kernels.sh
test-gpu: $(BUILD)/gpu_tests $(BUILD)/coda ## the rest, on a GPU; writes test/gpu.stamp (or $GPU_STAMP)
	@$(with_kernels) unpack $(GPU_CACHE) $(GPU_KERNELS)
	CODA_SEED=$(GPU_SEED) CODA_CACHE_DIR=$(GPU_CACHE) CODA_BUNDLES=$(GPU_CACHE) CODA_CACHE_LIMIT=-1 \
	    $(BUILD)/gpu_tests --stamp $(GPU_STAMP) --digest $$($(DIGEST))
sanitize-gpu: $(BUILD)/gpu_tests ## GPU tests under compute-sanitizer (SANITIZE='attention_grad row_sums grad', TOOLS=racecheck)
	@BUILD=$(BUILD) TOOLS='$(TOOLS)' test/system/sanitize_gpu.sh $(SANITIZE)
gpu-kernels: $(BUILD)/gpu_tests $(BUILD)/coda $(BUILD)/dry/libcuda.so.1 ## compiles, without a GPU, what test-gpu wants, into $GPU_KERNELS (an hour of one core)
	@$(with_kernels) make $(GPU_CACHE) $(GPU_KERNELS)
gpu-kernels-pack: $(BUILD)/coda ## writes all kernels that test-gpu had to $GPU_KERNELS
	@$(with_kernels) pack $(GPU_CACHE) $(GPU_KERNELS)
stamp-digest: ## a digest of include, lib, jit, primitives, cache and the GPU tests
	@$(DIGEST)

# ---- Primitives on the host: the device files through the C++ compiler, for test_primitives.c ----
HOST_PRIMS := $(filter primitives/map/% primitives/reduce/% primitives/pair/% primitives/port/% primitives/block/%,$(PRIMS))
host_names  = $(patsubst primitives/$(1)/%.cuh, X(%),$(filter primitives/$(1)/%,$(HOST_PRIMS)))

$(BUILD)/test/vocabulary.h: $(HOST_PRIMS)
	@mkdir -p $(@D)
	@{ for f in $(HOST_PRIMS:primitives/%=%); do echo "#include \"$$f\""; done; \
	    echo "#define MAPS(X)$(call host_names,map)"; echo "#define REDUCES(X)$(call host_names,reduce)"; } > $@
$(BUILD)/test/shim.o: test/shim/shim.cpp test/shim/host.h $(BUILD)/test/vocabulary.h
	$(CXX) -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -fno-exceptions -fno-rtti -ffp-contract=off $(CFLAGS) -O0 \
	    $(if $(SAN),-fsanitize=$(SAN) $(UNCHECKED:%=-fno-sanitize=%) -fno-sanitize-recover=all -fno-omit-frame-pointer) -MMD -MP -pthread -Iprimitives -Itest/shim \
	    -I$(BUILD)/test -include test/shim/host.h -c $< -o $@
# Where its test comes from $FAKED it does, too.
$(BUILD)/unit: $(call UNIT_DIR,test/unit/primitives/test_primitives.c)/test/shim.o

# ---- The house ----
layers: $(OBJ) ## which folder may include which, and call which; rooms that plan have no variables
	@nm -A $(OBJ) | awk -v build=$(BUILD)/ -f test/house/layers.awk $$(find lib jit cache primitives examples perf -path examples/serving -prune -o -name '*.[ch]' -print -o -name '*.cuh' -print) -
	@! nm -A -f sysv $(PLANNING:%.c=$(BUILD)/%.o) | grep -E '\| *(\.t?(bss|data)|\*COM)' | grep -vF '|.data.rel.ro'
locale: $(OBJ) $(TOOL_OBJ) ## what is printed and read is alike in every locale
	@nm -A $(filter %.o,$^) | awk -v build=$(BUILD)/ -f test/house/locale.awk $$(find lib jit cache examples -path examples/serving -prune -o -name '*.[ch]' -print) -
exports: $(BUILD)/libcoda.so $(BUILD)/libcoda.a ## libcoda.so and libcoda.a export the calls of coda.h, and nothing else
	@CC=$(CC) test/house/exports.sh $^
abi: $(BUILD)/libcoda.so ## the binary interface is the one described in test/abi
	@CC=$(CC) test/house/abi.sh $< $(BUILD)/abi
bless-abi: $(BUILD)/libcoda.so ## describes it anew: read the diff before you commit it (BREAK=1: also what breaks programs)
	@CC=$(CC) test/house/abi.sh $< $(BUILD)/abi bless
cuda-abi: ## jit/cuda_abi.h declares what the headers of the CUDA toolkit in $CUDA_HOME declare
	@CC=$(CC) test/house/cuda_abi.sh '$(CUDA_HOME)' $(BUILD)/cuda-abi
headers: $(BUILD)/libcoda.so ## coda.h as pedantic C99 and C++, its INIT macros, its first program; coda.hpp
	@CC=$(CC) CXX=$(CXX) test/house/headers.sh $(BUILD)/headers $<
lint: ## files over 800 lines, lines over 110 columns, folders over their budget, and what clang-format 14 would change, if it is there
	@test/house/lint.sh

tidy: $(BUILD)/compile_commands.json ## clang-tidy over lib, jit and cache: minutes
	@ls lib/*.c lib/*/*.c jit/*.c cache/*.c | xargs -P 2 -n 8 clang-tidy -p $(BUILD) --quiet

$(BUILD)/compile_commands.json: $(SRC) Makefile $(PARTS) ## for clangd and clang-tidy
	@mkdir -p $(@D)
	@{ printf '['; comma=; for f in $(SRC) $(TESTS) $(wildcard test/support/*.c examples/*.c examples/coda/*.c perf/*.c); do \
	    printf '%s\n{"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$$comma" '$(CURDIR)' $$f \
	        '$(CC) $(ALL_CFLAGS) -I$(BUILD)/test -Itest/support -Itest -Iexamples -Iexamples/coda -Iperf' $$f; comma=,; \
	done; printf '\n]\n'; } > $@

.PHONY: unit fakes locales bless bless-seconds check test test-full fuzzers texts bless-texts fuzz conformance conformance-subset torture-build torture \
	emulator test-gpu sanitize-gpu gpu-kernels gpu-kernels-pack stamp-digest layers locale exports abi bless-abi cuda-abi headers lint tidy
