# make            libcoda.so, libcoda.a and the tool coda, in build/
# make demo       a LLaMA block from its formula to fused kernels, on any machine
# make test       all that a CPU can prove
# make help       the other targets
# Variables: CUDA_HOME (toolkit, for tests that compile kernels), BUILD (output folder), HOSTILE=1 (small limits), SAN=address,undefined | thread

BUILD     ?= build
CUDA_HOME ?= $(firstword $(wildcard $(CURDIR)/build/cuda /usr/local/cuda))
CC        ?= gcc
OBJCOPY   ?= objcopy
CXX       ?= g++
PREFIX    ?= /usr/local
JOBS      ?= $(shell nproc 2>/dev/null || echo 2)
export CUDA_HOME CC CXX

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
CFLAGS  ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -pthread $(WARN) $(CFLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) $(if $(HOSTILE),-DCODA_HOSTILE) -MMD -MP \
	-Iinclude -Ilib $(ROOMS:%=-I%) -Ijit -Icache -Iprimitives -I$(BUILD) $(DEPS_INCLUDE)
DEPS_INCLUDE = $(patsubst %,-I%,$(wildcard build/deps/include))
LDLIBS   = -pthread -ldl -lm $(if $(SAN),-fsanitize=$(SAN))

ROOMS  := $(sort $(patsubst %/,%,$(dir $(wildcard lib/*/*.c))))
SRC    := $(wildcard lib/*.c lib/*/*.c jit/*.c cache/*.c primitives/ref/*.c)
OBJ    := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/prim.o
PRIMS  := $(sort $(wildcard primitives/*.cuh primitives/*/*.cuh))
REFS   := $(sort $(wildcard primitives/ref/*.c))

all: $(BUILD)/libcoda.so $(BUILD)/libcoda.a $(BUILD)/coda

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

# Loops over rows of the CPU device become vectors; no reference reads errno or the floating-point exceptions.
$(REFS:%.c=$(BUILD)/%.o) $(BUILD)/lib/cpu/cpu_memory.o $(BUILD)/lib/cpu/cpu_steps.o: ALL_CFLAGS += -ftree-vectorize -fvect-cost-model=dynamic -fno-math-errno -fno-trapping-math -ffp-contract=fast
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

# The table of primitives and their sources, generated from the .cuh files. It depends on their folders, too,
# which tell that a file has gone.
$(BUILD)/embed: primitives/embed.c primitives/sha256.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O1 $(WARN) $< -o $@
$(BUILD)/prim.c: $(BUILD)/embed $(PRIMS) $(REFS) $(sort $(dir $(PRIMS)))
	$(BUILD)/embed primitives $(PRIMS:primitives/%=%) > $@.tmp && mv $@.tmp $@
$(BUILD)/prim.o: $(BUILD)/prim.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

# The names of the calls of coda.h that return a value, without "coda_": CODA_BUILDERS(X) is X(input) X(weight) ...
$(BUILD)/builders.h: include/coda.h
	@mkdir -p $(@D)
	@{ printf '#define CODA_BUILDERS(X)'; sed -n 's/^CODA_API coda_value coda_\([a-z0-9_]*\)(coda_graph \*g,.*/ X(\1)/p' $< | tr -d '\n'; echo; } > $@
$(BUILD)/lib/api/api_words.o: $(BUILD)/builders.h

# The archive is one object in which everything but coda_* is local, so that a program may have a graph_new of
# its own. Sections stay apart, so that --gc-sections drops what is not called. Tests see the inside.
$(BUILD)/libcoda.o: $(OBJ)
	$(CC) -r -nostdlib $(CFLAGS) $(if $(findstring -flto,$(CFLAGS)),-flinker-output=nolto-rel) $^ -o $@.tmp
	$(OBJCOPY) --localize-hidden $@.tmp $@
	@rm -f $@.tmp
$(BUILD)/libcoda.a: $(BUILD)/libcoda.o
$(BUILD)/libcoda_internal.a: $(OBJ)
$(BUILD)/libcoda.a $(BUILD)/libcoda_internal.a:
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/libcoda.so: $(OBJ) lib/package/libcoda.map
	$(CC) -shared -Wl,-soname,libcoda.so.0 -Wl,--no-undefined -Wl,--version-script=lib/package/libcoda.map $(OBJ) -o $@ $(LDLIBS)
	@ln -sf libcoda.so $(BUILD)/libcoda.so.0

# ---- The tool and the examples: users of coda.h alone ----
MODEL_EXAMPLES := embed generate
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(filter-out examples/chat_server.c examples/chat_load.c $(MODEL_EXAMPLES:%=examples/%.c),$(wildcard examples/*.c)))
CHAT_OBJ := $(patsubst %.c,$(BUILD)/%.o,examples/chat_server.c $(wildcard examples/chat/*.c))
TOOL_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/coda/*.c))

$(BUILD)/examples/%.o: ALL_CFLAGS += -Iexamples
$(BUILD)/coda: $(TOOL_OBJ) $(BUILD)/libcoda.a
	$(CC) $^ -o $@ $(LDLIBS)
$(BUILD)/examples/%: $(BUILD)/examples/%.o $(BUILD)/libcoda.so
	$(CC) $< -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(LDLIBS)
# Libc and sockets are all that it wants.
LOAD_OBJ := $(patsubst %.c,$(BUILD)/%.o,examples/chat_load.c $(wildcard examples/load/*.c))
$(BUILD)/examples/chat_load.o: ALL_CFLAGS += -Iexamples/load
$(BUILD)/examples/chat_load: $(LOAD_OBJ)
	$(CC) $^ -o $@ $(LDLIBS)
examples: $(EXAMPLES) $(BUILD)/examples/chat_load chat_server models
programs: # names all programs, for the test of their --help
	@echo $(BUILD)/coda $(EXAMPLES) $(MODEL_EXAMPLES:%=$(BUILD)/examples/%) $(BUILD)/examples/chat_load $(BUILD)/examples/chat_server $(PERF:%=$(BUILD)/perf/%)

deps: ## installs what the tests miss: packages by apt, CUDA 13 by Python wheels
	@.ci/deps
demo: ## builds the library and runs examples/llama_block.c (DEMO=--cpu: as if there were no GPU)
	@.ci/deps demo
	@echo 'building libcoda, the tool and the demo'
	@COUNT='find $(BUILD) -name "*.o" | wc -l' ALL=$(words $(OBJ) $(TOOL_OBJ) libcoda.o llama_block.o) \
	    .ci/progress building $(MAKE) --no-print-directory -s -j$(JOBS) all $(BUILD)/examples/llama_block
	@$(BUILD)/examples/llama_block $(DEMO)

# ---- Whole models from their files: jansson reads JSON, PCRE2 and utf8proc cut text into tokens ----
MODEL_PACKAGES = jansson libpcre2-8 libutf8proc
MODEL_LIBS    ?= $(shell pkg-config --libs $(MODEL_PACKAGES) 2>/dev/null)
MODEL_CFLAGS  ?= $(shell pkg-config --cflags $(MODEL_PACKAGES) 2>/dev/null)
TOKENIZER_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/tokenizer/*.c))
MODEL_OBJ     := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/model/*.c examples/template/*.c)) $(TOKENIZER_OBJ)
MODELS        := $(BUILD)/examples/libmodel.a
MODEL_DIRS    := -Iexamples/model -Iexamples/template -Iexamples/tokenizer
$(MODEL_OBJ) $(MODEL_EXAMPLES:%=$(BUILD)/examples/%.o): ALL_CFLAGS += $(MODEL_DIRS) $(MODEL_CFLAGS)
$(MODELS): $(MODEL_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/examples/embed.o: ALL_CFLAGS += -Iexamples/coda
$(BUILD)/examples/embed: $(BUILD)/examples/coda/npy.o
$(MODEL_EXAMPLES:%=$(BUILD)/examples/%): $(BUILD)/examples/%: $(BUILD)/examples/%.o $(MODELS) $(BUILD)/libcoda.so
	$(CC) $(filter %.o %.a,$^) -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(MODEL_LIBS) $(LDLIBS)
models: ## examples/embed.c and generate.c and the tests of examples/model, if jansson, PCRE2 and utf8proc are there
tokenizers: ## of these the test of examples/tokenizer alone
ifneq ($(strip $(MODEL_LIBS)),)
models: $(MODEL_EXAMPLES:%=$(BUILD)/examples/%) $(BUILD)/model_test tokenizers
tokenizers: $(BUILD)/tokenizer_test
else
models:
	@echo 'examples/embed, examples/generate and their tests are not built: pkg-config does not find all of $(MODEL_PACKAGES); .ci/deps installs them'
tokenizers: models
endif
embed-data: ## fetches all-MiniLM-L6-v2, 91 MB, into build/minilm, for examples/embed and its test
	@mkdir -p $(BUILD) && .ci/progress 'fetching 91 MB' python3 examples/model/fetch_minilm.py $(BUILD)/minilm
# The server: these, and HTTP. Where there is no pkg-config, CHAT_LIBS and CHAT_CFLAGS may be given (perf/README.md).
CHAT_PACKAGES = libmicrohttpd $(MODEL_PACKAGES)
CHAT_LIBS    ?= $(shell pkg-config --libs $(CHAT_PACKAGES) 2>/dev/null)
CHAT_CFLAGS  ?= $(shell pkg-config --cflags $(CHAT_PACKAGES) 2>/dev/null)
$(BUILD)/examples/chat/%.o: ALL_CFLAGS += $(MODEL_DIRS) $(CHAT_CFLAGS)
$(BUILD)/examples/chat_server.o: ALL_CFLAGS += -Iexamples/chat $(MODEL_DIRS) $(CHAT_CFLAGS)
$(BUILD)/examples/chat_server: $(CHAT_OBJ) $(MODELS) $(BUILD)/libcoda.so
	$(CC) $(CHAT_OBJ) $(MODELS) -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(CHAT_LIBS) $(LDLIBS)
chat_server: ## examples/chat_server.c, chat_load.c and their test, if libmicrohttpd and what `models` wants are there
ifneq ($(strip $(CHAT_LIBS)),)
chat_server: $(BUILD)/examples/chat_server $(BUILD)/examples/chat_load $(BUILD)/chat_test
else
	@echo 'examples/chat_server is not built: pkg-config does not find all of $(CHAT_PACKAGES); .ci/deps installs them'
endif
.PHONY: models embed-data

# Models from files, against tiny ones whose logits another library has made.
MODEL_TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/system/model/*.c))
$(MODEL_TEST_OBJ): ALL_CFLAGS += -Iexamples $(MODEL_DIRS)
$(BUILD)/model_test: $(MODEL_TEST_OBJ) $(MODELS) $(BUILD)/libcoda.a
	$(CC) $^ -o $@ $(MODEL_LIBS) $(LDLIBS)

# ---- Tests ----
# A driver, and an NVRTC made of g++, over an SM in software (see test/emulator).
EMULATOR   = $(BUILD)/emulator/libcuda.so.1 $(BUILD)/emulator/libnvrtc.so.13
TESTS     := $(sort $(wildcard test/unit/*/test_*.c))
UTIL_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/support/*.c))
TEST_OBJ  := $(TESTS:%.c=$(BUILD)/%.o) $(BUILD)/test/unit/main.o $(UTIL_OBJ)
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

$(BUILD)/test/suites.h: $(TESTS)
	@mkdir -p $(@D)
	@for f in $(TESTS:test/unit/%.c=%); do echo "SUITE($${f%%/*}, $${f#*/test_})"; done > $@
$(BUILD)/test/unit/main.o: $(BUILD)/test/suites.h
# Tests need no optimiser to be right; its time is better spent on running them.
TEST_CFLAGS ?= -O1
$(BUILD)/test/%.o: ALL_CFLAGS += $(TEST_CFLAGS) -I$(BUILD)/test -Itest/support -Itest
$(BUILD)/unit: $(TEST_OBJ) $(BUILD)/libcoda_internal.a | $(EMULATOR)
	$(CC) $^ -o $@ $(CHECK_LIBS) $(LDLIBS)
# The same, and the cache's torture, under names of four bits: see test/weak.
$(BUILD)/weak/unit: $(TEST_OBJ) $(BUILD)/test/shim.o $(BUILD)/test/weak/name.o $(BUILD)/libcoda_internal.a | $(EMULATOR)
	@mkdir -p $(@D)
	$(CXX) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(CHECK_LIBS) $(LDLIBS)
unit: $(BUILD)/unit $(BUILD)/coda ## the unit tests alone (SUITES='cache plan': of these rooms or suites)
	$(BUILD)/unit $(SUITES)
# Locales with a decimal comma and with a dotless i, for LOCPATH: they are compiled from glibc's sources, without root.
LOCALES := $(addprefix $(BUILD)/locale/,de_DE.UTF-8 tr_TR.UTF-8)
locales: $(LOCALES)
$(LOCALES):
	@mkdir -p $(@D)
	@localedef -i $(basename $(@F)) -f UTF-8 $@.part || { echo '$(@F) cannot be made: .ci/deps installs what is missing'; exit 1; }
	@mv $@.part $@
bless: $(BUILD)/unit ## rewrites test/golden/*.coda: read the diff before you commit it
	CODA_BLESS=1 CK_RUN_SUITE=golden $(BUILD)/unit
check: ## what an edit needs, in a minute or two: no NVRTC, no sanitizer
	@BUILD=$(BUILD) test/run check
test: deps ## all that a CPU can prove (AGAIN=1: what failed the last time)
	@BUILD=$(BUILD) test/run test
test-full: deps ## the same with every case, long fuzzing and torture at full scale (hours)
	@BUILD=$(BUILD) test/run test-full

# A client that asks a server of examples/chat_server.c everything.
$(BUILD)/test/system/chat/%.o: ALL_CFLAGS += -Iexamples -Iexamples/chat $(MODEL_DIRS) $(CHAT_CFLAGS)
CHAT_TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/system/chat/*.c) $(addprefix examples/chat/,served.c runner.c graph.c captures.c shapes.c timer.c pool.c))
$(BUILD)/chat_test: $(CHAT_TEST_OBJ) $(MODELS) $(BUILD)/libcoda.so
	$(CC) $(CHAT_TEST_OBJ) $(MODELS) -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN' $(CHAT_LIBS) $(LDLIBS)

# Tokenizers, against what the package `tokenizers` did with them.
TOKENIZER_TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/system/model/tokenizer/*.c))
$(TOKENIZER_TEST_OBJ): ALL_CFLAGS += -Iexamples -Iexamples/tokenizer
$(BUILD)/tokenizer_test: $(TOKENIZER_TEST_OBJ) $(TOKENIZER_OBJ)
	$(CC) $^ -o $@ $(MODEL_LIBS) $(LDLIBS)

# Fuzzers of texts that others bring: template_fuzz and tokenizer_fuzz SECONDS [SEED].
TEXT_FUZZERS := $(BUILD)/template_fuzz $(BUILD)/tokenizer_fuzz
$(TEXT_FUZZERS:$(BUILD)/%_fuzz=$(BUILD)/test/system/model/fuzz/%.o): ALL_CFLAGS += -Iexamples -Iexamples/template -Iexamples/tokenizer $(MODEL_CFLAGS)
$(TEXT_FUZZERS): $(BUILD)/%_fuzz: $(BUILD)/test/system/model/fuzz/%.o $(BUILD)/test/system/model/fuzz/fuzz.o $(MODELS)
	$(CC) $^ -o $@ $(MODEL_LIBS) $(LDLIBS)
text-fuzzers: $(if $(strip $(MODEL_LIBS)),$(TEXT_FUZZERS))
.PHONY: text-fuzzers

# Programs beside the unit tests. Fuzzers: fuzz_NAME SECONDS [SEED].
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/%,$(wildcard test/fuzz/fuzz_*.c))
SECONDS ?= 600
SEED    ?= $(shell date +%s)

$(BUILD)/test/util.a: $(UTIL_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/fuzz_%: $(BUILD)/test/fuzz/fuzz_%.o $(BUILD)/test/util.a $(BUILD)/libcoda_internal.a
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(LDLIBS)
# Each call that coda.h declares.
$(BUILD)/test/calls.h: include/coda.h test/house/exports.sh
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
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(LDLIBS)
texts: $(BUILD)/texts perf-build examples ## plans and kernels have the texts that they had: test/golden/texts.sha256
	@BUILD=$(BUILD) test/house/texts.sh
bless-texts: $(BUILD)/texts perf-build examples ## writes it anew, where texts are meant to change
	@BUILD=$(BUILD) test/house/texts.sh bless
fuzz: ## SECONDS=600 of each fuzzer, with address and undefined behaviour sanitizers
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/asan SAN=address,undefined CFLAGS='-O1 -g' fuzzers text-fuzzers
	@for f in $(FUZZERS:$(BUILD)/%=$(BUILD)/asan/%) $(if $(strip $(MODEL_LIBS)),$(TEXT_FUZZERS:$(BUILD)/%=$(BUILD)/asan/%)); do $$f $(SECONDS) $(SEED) || exit 1; done

# The ONNX operator suite as coda_* calls: all of it, made from the package `onnx`, or the part that is committed.
CONFORMANCE_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/conformance/*.c))
$(BUILD)/test/conformance/%.o: ALL_CFLAGS += -Itest/conformance
$(BUILD)/conformance/run: $(CONFORMANCE_OBJ) $(BUILD)/libcoda.a
	@mkdir -p $(@D)
	$(CC) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(LDLIBS)
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
	$(CC) $^ -o $@ $(LDLIBS) -lutil

# Run by hand.
$(BUILD)/bench_%: $(BUILD)/test/unit/cache/bench_%.o $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(LDLIBS)

# Every N-th allocation fails.
WRAP_ALLOCATORS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup,--wrap=aligned_alloc
$(BUILD)/oom: $(BUILD)/test/fuzz/oom.o $(BUILD)/test/fuzz/oom_shapes.o $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(LDLIBS) $(WRAP_ALLOCATORS)

# The kernel cache under torture, with a compiler, a driver and a libc that misbehave as told.
FAKE_CFLAGS = -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -pthread $(WARN) -Ijit -Iinclude -Itest/fake
FAKES       = $(addprefix $(BUILD)/fake/,libnvrtc.so.13 libcuda.so.1 shim.so)
TORTURES   := $(patsubst test/torture/%.c,$(BUILD)/torture/%,\
	$(filter-out test/torture/torture.c test/torture/shim.c,$(wildcard test/torture/*.c)))

$(BUILD)/fake/libnvrtc.so.13: test/fake/nvrtc.c test/fake/image.c test/fake/fake.h
$(BUILD)/fake/libcuda.so.1: test/fake/cuda.c test/fake/time.c test/fake/image.c test/fake/fake.h jit/driver.h
$(BUILD)/fake/shim.so: test/torture/shim.c test/torture/shim.h
$(FAKES):
	@mkdir -p $(@D)
	$(CC) $(FAKE_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--build-id -Wl,--no-undefined $(filter %.c,$^) -o $@ -ldl
$(BUILD)/fuzz_api: | $(FAKES)
$(BUILD)/test/torture/%.o: ALL_CFLAGS += -Itest/fake -Itest/torture
$(BUILD)/torture/%: $(BUILD)/test/torture/%.o $(BUILD)/test/torture/torture.o $(BUILD)/test/fake/image.o \
		$(BUILD)/libcoda_internal.a $(FAKES)
	@mkdir -p $(@D)
	$(CC) $(filter %.o,$^) -o $@ $(BUILD)/fake/shim.so $(BUILD)/libcoda_internal.a -Wl,-rpath,'$$ORIGIN/../fake' $(LDLIBS)
$(BUILD)/torture/hot: LDLIBS += $(WRAP_ALLOCATORS) -Wl,--wrap=pthread_mutex_lock
$(BUILD)/weak/torture/%: $(BUILD)/test/torture/%.o $(BUILD)/test/torture/torture.o $(BUILD)/test/fake/image.o \
		$(BUILD)/test/weak/name.o $(BUILD)/libcoda_internal.a $(FAKES)
	@mkdir -p $(@D)
	@ln -sfn ../fake $(@D)/../fake && ln -sfn ../coda $(@D)/../coda
	$(CC) $(filter %.o,$^) -o $@ $(BUILD)/fake/shim.so $(BUILD)/libcoda_internal.a -Wl,-rpath,'$$ORIGIN/../../fake' $(LDLIBS)
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
$(EMULATOR): $(EMULATOR_H) test/emulator/exports.map
	@mkdir -p $(@D)
	$(CC) $(FAKE_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--build-id -Wl,--no-undefined \
	    -Wl,--version-script=test/emulator/exports.map $(filter %.c,$^) -o $@ -ldl -lm
emulator: $(EMULATOR) $(BUILD)/gpu_tests ## the GPU tests' machine without a GPU; EMULATE='gemm rows' runs these on it
	@[ -z "$(EMULATE)" ] || CODA_CUDA_LIB=$(abspath $(BUILD))/emulator CODA_LIBCUDA=$(abspath $(BUILD))/emulator/libcuda.so.1 \
	    $(BUILD)/gpu_tests $(EMULATE)

# GPU tests: no Check, so that they run where only a driver and a toolkit are. Each test/gpu/gpu_NAME.c
# defines int gpu_NAME(void), the number of its failures.
GPU_TESTS := $(filter-out test/gpu/gpu_main.c,$(sort $(wildcard test/gpu/gpu_*.c)))
GPU_OBJ    = $(GPU_TESTS:%.c=$(BUILD)/%.o) $(BUILD)/test/gpu/gpu_main.o $(BUILD)/test/util.a
GPU_STAMP ?= test/gpu.stamp
DIGEST     = find include lib jit primitives cache test/gpu -type f | LC_ALL=C sort | \
	xargs sha256sum | sha256sum | cut -c-64

$(BUILD)/test/gpu_list.h: $(GPU_TESTS)
	@mkdir -p $(@D)
	@for f in $(GPU_TESTS:test/gpu/gpu_%.c=%); do echo "GPU_TEST($$f)"; done > $@
$(BUILD)/test/gpu/gpu_main.o: $(BUILD)/test/gpu_list.h
$(BUILD)/gpu_tests: $(GPU_OBJ) $(BUILD)/libcoda_internal.a
	$(CC) $^ -o $@ $(LDLIBS)
test-gpu: $(BUILD)/gpu_tests ## the rest, on a GPU; writes test/gpu.stamp (or $GPU_STAMP)
	$(BUILD)/gpu_tests --stamp $(GPU_STAMP) --digest $$($(DIGEST))
stamp-digest: ## a digest of include, lib, jit, primitives, cache and the GPU tests
	@$(DIGEST)

# ---- Measurements: users of coda.h alone; all but latency and start need a GPU ----
PERF      := gemm fused epilogue layer invariant attention encoder shapes host latency start cpu
PERF_OBJ  := $(patsubst %,$(BUILD)/perf/%.o,bench data report machine block)
CASES     ?=
PERF_ARGS ?=

$(BUILD)/perf/%.o: ALL_CFLAGS += -Iexamples -Iperf
$(BUILD)/perf/%: $(BUILD)/perf/%.o $(PERF_OBJ) $(BUILD)/libcoda.so
	$(CC) $< $(PERF_OBJ) -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(LDLIBS)
.SECONDARY: $(PERF_OBJ) $(PERF:%=$(BUILD)/perf/%.o)
perf-build: $(PERF:%=$(BUILD)/perf/%)
perf: ## measures on the GPU, into perf/results (CASES='gemm/DxD /4096', PERF_ARGS=--quick)
	@$(MAKE) --no-print-directory -j$(JOBS) perf-build
	@for p in $(PERF); do $(BUILD)/perf/$$p $(PERF_ARGS) $(CASES) || bad=1; done; \
	[ -n "$(CASES)" ] || $(BUILD)/perf/layer --sustained --out perf/results/sustained.json $(PERF_ARGS) layer/ || bad=1; \
	exit $${bad:-0}
perf-tuned: ## tunes every product, forty tiles each: is the price right? (minutes)
	@$(MAKE) --no-print-directory -j$(JOBS) perf-build
	@for p in gemm fused; do \
	    $(BUILD)/perf/$$p --max-autotune --out perf/results/tuned_$$p.json $(PERF_ARGS) $(CASES) || bad=1; \
	done; exit $${bad:-0}
perf-torch: $(BUILD)/libcoda.so ## the same beside PyTorch, if python3 has it (TORCH_ARGS='--all --max-autotune --jax')
	@CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/pytorch.py $(TORCH_ARGS) $(CASES)
	@[ -n "$(CASES)" ] || CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/serving.py
PYTHON ?= python3
perf-cpu: $(BUILD)/libcoda.so examples ## the CPU device beside PyTorch or NumPy, if PYTHON has them; whole models with LLAMA_BENCH=, MINILM=
	@$(PYTHON) perf/cpu_peers.py --library $(BUILD)/libcoda.so $(CASES)
	@[ -z "$(LLAMA_BENCH)" ] || $(PYTHON) perf/cpu_models.py --stories $(LLAMA_BENCH)
	@[ -z "$(MINILM)" ] || $(PYTHON) perf/cpu_models.py --minilm $(MINILM)
perf-report: ## perf/results beside their bars, as charts, and as the table of perf/README.md
	@perf/publish

# ---- The house ----
layers: $(OBJ) ## which folder may include which, and call which
	@nm -A $(OBJ) | awk -v build=$(BUILD)/ -f test/house/layers.awk $$(find lib jit cache primitives examples perf -name '*.[ch]' -o -name '*.cuh') -
locale: $(OBJ) $(TOOL_OBJ) $(CHAT_OBJ) $(MODEL_OBJ) $(LOAD_OBJ) ## what is printed and read is alike in every locale
	@nm -A $(filter %.o,$^) | awk -v build=$(BUILD)/ -f test/house/locale.awk $$(find lib jit cache examples -name '*.[ch]') -
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
lint: ## files over 800 lines, lines over 110 columns, and what clang-format 14 would change, if it is there
	@test/house/lint.sh

tidy: $(BUILD)/compile_commands.json ## clang-tidy over lib, jit and cache: minutes
	@ls lib/*.c lib/*/*.c jit/*.c cache/*.c | xargs -P 2 -n 8 clang-tidy -p $(BUILD) --quiet

$(BUILD)/compile_commands.json: $(SRC) Makefile ## for clangd and clang-tidy
	@mkdir -p $(@D)
	@{ printf '['; comma=; for f in $(SRC) $(TESTS) $(wildcard test/support/*.c test/system/chat/*.c examples/*.c examples/*/*.c perf/*.c); do \
	    printf '%s\n{"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$$comma" '$(CURDIR)' $$f \
	        '$(CC) $(ALL_CFLAGS) -I$(BUILD)/test -Itest/support -Itest -Iexamples -Iexamples/chat -Iexamples/coda -Iexamples/load $(MODEL_DIRS) -Iperf' $$f; comma=,; \
	done; printf '\n]\n'; } > $@

# ---- Installation: lib/package/README.md ----
VERSION  = $(shell sed -n 's/.*CODA_VERSION_STRING "\(.*\)"/\1/p' include/coda.h)
LIBDIR  ?= lib
D        = $(DESTDIR)$(PREFIX)
L        = $(D)/$(LIBDIR)
GRAPHS  := $(notdir $(wildcard examples/graphs/*.coda))
PAGES   := README.md ENVIRONMENT.md CHANGELOG.md LICENSE
MANUAL  := coda.1 coda-cache.1
# A page, or a link to one, for each function and each type with a name: `make doc` makes them.
PAGES3   = $(shell sed -n -f lib/package/manual/pages.sed include/coda.h | sort -u)
CONFIGS := coda-config.cmake coda-config-version.cmake
INSTALLED = include/coda.h include/coda.hpp $(addprefix $(LIBDIR)/,libcoda.so.0 libcoda.so libcoda.a pkgconfig/coda.pc cps/coda.cps $(CONFIGS:%=cmake/coda/%)) \
	bin/coda $(MANUAL:%=share/man/man1/%) $(PAGES3:%=share/man/man3/%) share/man/man7/coda.7 share/doc/coda/coda.html $(GRAPHS:%=share/coda/graphs/%) $(PAGES:%=share/doc/coda/%)
FILL     = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@MINOR@|$(basename $(VERSION))|' \
	-e 's|@UP@|$(shell echo $(LIBDIR) | sed 's/[^/][^/]*/../g')|'

# The manual. It runs the tool, and is never committed.
MANUAL_FROM := include/coda.h ENVIRONMENT.md lib/graph/graph_parse.c $(wildcard lib/package/manual/*)
doc: $(BUILD)/doc/coda.html ## the manual: man pages of coda.h, and all of it in build/doc/coda.html
$(BUILD)/doc/coda.html: $(MANUAL_FROM) $(BUILD)/coda
	@lib/package/manual/manual.sh $(BUILD)/coda $(BUILD)/doc

install: all doc ## all that is needed to build and run programs, into $DESTDIR$PREFIX; PREFIX=/usr/local, LIBDIR=lib
	install -d $(sort $(dir $(INSTALLED:%=$(D)/%)))
	install -m 644 include/coda.h include/coda.hpp $(D)/include
	install -m 755 $(BUILD)/libcoda.so $(L)/libcoda.so.0
	ln -sf libcoda.so.0 $(L)/libcoda.so
	install -m 644 $(BUILD)/libcoda.a $(L)
	install -m 755 $(BUILD)/coda $(D)/bin
	install -m 644 $(MANUAL:%=examples/coda/%) $(D)/share/man/man1
	install -m 644 $(PAGES3:%=$(BUILD)/doc/man3/%) $(D)/share/man/man3
	install -m 644 $(BUILD)/doc/man7/coda.7 $(D)/share/man/man7
	install -m 644 $(BUILD)/doc/coda.html $(D)/share/doc/coda
	install -m 644 $(GRAPHS:%=examples/graphs/%) $(D)/share/coda/graphs
	install -m 644 $(PAGES) $(D)/share/doc/coda
	$(FILL) lib/package/coda.pc.in > $(L)/pkgconfig/coda.pc
	$(FILL) lib/package/coda.cps.in > $(L)/cps/coda.cps
	for f in $(CONFIGS); do $(FILL) lib/package/$$f.in > $(L)/cmake/coda/$$f || exit 1; done
	@[ -n "$(DESTDIR)" ] || lib/package/loader.sh '$(PREFIX)/$(LIBDIR)'
uninstall: ## takes them away again
	rm -f $(INSTALLED:%=$(D)/%)
	rmdir $(D)/share/coda/graphs $(D)/share/coda $(D)/share/doc/coda $(L)/cmake/coda 2>/dev/null || true
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

deb: ## Debian packages libcoda0, libcoda-dev and coda, in build/deb (minutes)
	@.ci/deps deb
	@test/system/deb.sh $(BUILD)/deb

clean: ## removes all build output but the fetched CUDA
	find $(BUILD) -mindepth 1 -maxdepth 1 ! -name cuda ! -name deps -exec rm -rf {} + 2>/dev/null || true
help: ## this list
	@sed -n 's/^# make/make/p' Makefile
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: all examples programs cuda-abi chat_server tokenizers deps demo unit bless texts bless-texts check test test-full conformance conformance-subset emulator fuzzers fuzz torture torture-build test-gpu stamp-digest layers locale locales exports abi bless-abi headers lint tidy \
	doc install uninstall deb clean help perf perf-cpu perf-build perf-tuned perf-torch perf-report

# ---- Primitives on the host: the device files through the C++ compiler, for test_primitives.c ----
HOST_PRIMS := $(filter primitives/map/% primitives/reduce/% primitives/pair/% primitives/port/% primitives/block/%,$(PRIMS))
host_names  = $(patsubst primitives/$(1)/%.cuh, X(%),$(filter primitives/$(1)/%,$(HOST_PRIMS)))

$(BUILD)/test/vocabulary.h: $(HOST_PRIMS)
	@mkdir -p $(@D)
	@{ for f in $(HOST_PRIMS:primitives/%=%); do echo "#include \"$$f\""; done; \
	    echo "#define MAPS(X)$(call host_names,map)"; echo "#define REDUCES(X)$(call host_names,reduce)"; } > $@
$(BUILD)/test/shim.o: test/shim/shim.cpp test/shim/host.h $(BUILD)/test/vocabulary.h
	$(CXX) -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -fno-exceptions -fno-rtti -ffp-contract=off $(CFLAGS) \
	    $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) -MMD -MP -pthread -Iprimitives -Itest/shim \
	    -I$(BUILD)/test -include test/shim/host.h -c $< -o $@
$(BUILD)/unit: $(BUILD)/test/shim.o
