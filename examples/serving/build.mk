# examples/serving/build.mk -- whole models from their files, and a server: jansson reads JSON, PCRE2 and utf8proc cut text
# into tokens. A part of the Makefile.
MODEL_EXAMPLES := embed generate
CHAT_OBJ := $(patsubst %.c,$(BUILD)/%.o,examples/chat_server.c $(wildcard examples/chat/*.c))

# Libc and sockets are all that it wants.
LOAD_OBJ := $(patsubst %.c,$(BUILD)/%.o,examples/chat_load.c $(wildcard examples/load/*.c))
$(BUILD)/examples/chat_load.o: ALL_CFLAGS += -Iexamples/load
$(BUILD)/examples/chat_load: $(LOAD_OBJ)
	$(CC) $^ -o $@ $(LDLIBS)

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

# Models from files, against tiny ones whose logits another library has made.
MODEL_TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/system/model/*.c))
$(MODEL_TEST_OBJ): ALL_CFLAGS += -Iexamples $(MODEL_DIRS)
$(BUILD)/model_test: $(MODEL_TEST_OBJ) $(MODELS) $(BUILD)/libcoda.a
	$(CC) $^ -o $@ $(MODEL_LIBS) $(LDLIBS)

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

.PHONY: models tokenizers embed-data chat_server text-fuzzers
