# jobs.mk -- the tests as a graph of jobs, so that make keeps every core busy. `make check`, `test` and `test-full` call it
# by the library's test/run.
#
#     check      models and tokenizers on the CPU device, the server, the laws of the tree: no sanitizer, no emulator
#     test       all that a CPU can prove
#     test-full  the same with every case and long fuzzing

TREE       := ../..
CODA_BUILD ?= build
include $(TREE)/test/tiers.mk

# ---- Builds: each is one make, whose compilers share this one's slots ----
IN      = $(MAKE) --no-print-directory -s -f Makefile
# Where a pointer that is null, has wrapped or has left its object is used, AddressSanitizer sees it: that it came to be is for a full run.
AS_ASAN = UNCHECKED='$(if $(FULL),,null,pointer-overflow,object-size)' BUILD=$(BUILD)/asan CODA_BUILD=$(CODA_BUILD)/asan FAKED=$(CODA_BUILD) SAN=address,undefined CFLAGS='-Og -g1' TEST_CFLAGS=-O0
AS_TSAN = BUILD=$(BUILD)/tsan CODA_BUILD=$(CODA_BUILD)/tsan FAKED=$(CODA_BUILD) SAN=thread CFLAGS='-Og -g1' TEST_CFLAGS=-O0
LIBRARY = $(TREE)/$(CODA_BUILD)
# What tests start; of the other programs all but main() is in the tests.
ASAN_PROGRAMS = $(addprefix $(BUILD)/asan/,chat_server chat_load generate)

.PHONY: built-plain built-library built-asan built-tsan
built-plain:
	@+$(IN) BUILD=$(BUILD) CFLAGS='-O2 -g1' all tests
# The SM in software, a compiler that waits, and a terminal, all of the library's tests.
built-library: built-plain
	@+$(MAKE) --no-print-directory -s -C $(TREE) BUILD=$(CODA_BUILD) all $(addprefix $(CODA_BUILD)/,emulator/libcuda.so.1 emulator/libnvrtc.so.13 emulator/libnccl.so.2 terminal_test)
built-asan: built-library
	@+$(IN) $(AS_ASAN) $(ASAN_PROGRAMS) tests fuzzers
built-tsan: built-asan
	@+$(IN) $(AS_TSAN) $(BUILD)/tsan/chat_server $(BUILD)/tsan/chat_load $(BUILD)/tsan/chat_test

# ---- The server ----
# A client that asks it everything over HTTP; again where a sanitizer sees the threads and the clean end.
$(eval $(call job,chat,plain,$(BUILD)/chat_test $(BUILD)/chat_server))
$(eval $(call job,chat-curl,plain,test/chat/curl.sh $(BUILD)/chat_server))
# Its page in a headless Chromium, where there is one.
$(eval $(call job,chat-page,plain,python3 test/chat/page.py $(BUILD)/chat_server stories260K/stories260K.gguf))
PARTS_ASAN_chat = endpoints leaving access fuzz $(call drawn,batching load,words states story,ranks pressure)
$(eval $(call job,chat-asan,asan,env CHAT_FUZZ_SECONDS=$(if $(FULL),60,1) $(BUILD)/asan/chat_test $(BUILD)/asan/chat_server $(PARTS_ASAN_chat)))
$(eval $(call job,chat-tsan,tsan,$(BUILD)/tsan/chat_test $(BUILD)/tsan/chat_server leaving $(if $(FULL),ranks pressure)))

# ---- Tokenizers of all kinds: ids, texts, damaged files; a real one's, where `make embed-data` has brought it ----
TOKENIZER_TEST = tokenizer_test test/model/tokenizers $(TREE)/build/minilm $$$$CODA_SEED
$(eval $(call job,tokenizer,plain,$(BUILD)/$(TOKENIZER_TEST) $(if $(FULL),20000,100)))
$(eval $(call job,tokenizer-asan,asan,$(BUILD)/asan/$(TOKENIZER_TEST) $(if $(FULL),20000,25)))

# ---- Checkpoints of each family: logits, texts, broken files; the real MiniLM, if `make embed-data` has brought it ----
MODEL_TEST = model_test test/model/tiny
$(eval $(call job,model,plain,sh -c 'mkdir -p $(BUILD)/model && $(BUILD)/$(MODEL_TEST) $(BUILD)/model'))
# What reads others' files is looked at in each run, what computes in a third of them.
PARTS_ASAN_model = files keys known plain modules words cuts fuzz templates template_depth turns \
	$(call drawn,families recurrent adapters,quantised quantize,ranks ranks_encoders)
$(eval $(call job,model-asan,asan,sh -c 'mkdir -p $(BUILD)/asan/model && $(BUILD)/asan/$(MODEL_TEST) $(BUILD)/asan/model $(PARTS_ASAN_model)'))
# Templates and tokenizers that are drawn, up to a megabyte, within their limits. SECONDS=600 of each: `make fuzz`.
FUZZERS := template_fuzz tokenizer_fuzz
$(foreach f,$(FUZZERS),$(eval $(call job,$(f),asan,$(BUILD)/asan/$(f) $(if $(FULL),60,1) $$$$CODA_SEED)))
# Files that are not what they should be, where uninitialised bytes are seen, too.
$(eval $(call job,model-valgrind,plain,sh -c 'mkdir -p $(BUILD)/valgrind && test/model/valgrind.sh $(BUILD)/$(MODEL_TEST) $(BUILD)/valgrind'))
# Kernels of encoders in their real sizes. Those that compiled well are kept.
$(eval $(call job,nvrtc-encoders,plain,env CODA_CACHE_DIR=$(abspath $(LIBRARY))/kernels test/model/spills.sh $(BUILD)/embed test/model/sizes))

# ---- Pictures: latents, files that are changed; command lines on the CPU device and on the SM in software ----
PICTURE_TEST = picture_test test/picture/tiny
$(eval $(call job,picture,plain,sh -c 'mkdir -p $(BUILD)/picture_test.d && $(BUILD)/$(PICTURE_TEST) $(BUILD)/picture_test.d'))
$(eval $(call job,picture-asan,asan,sh -c 'mkdir -p $(BUILD)/asan/picture_test.d && $(BUILD)/asan/$(PICTURE_TEST) $(BUILD)/asan/picture_test.d'))

# ---- Training: losses, gradients, optimisers, what is written; command lines, kills, losses that fall ----
TRAIN_TEST = train_test test/model/tiny
$(eval $(call job,train,plain,sh -c 'mkdir -p $(BUILD)/train_test.d && $(BUILD)/$(TRAIN_TEST) $(BUILD)/train_test.d'))
$(eval $(call job,train-asan,asan,sh -c 'mkdir -p $(BUILD)/asan/train_test.d && $(BUILD)/asan/$(TRAIN_TEST) $(BUILD)/asan/train_test.d'))
$(eval $(call job,training,plain,test/training/train.sh $(BUILD) $(if $(FULL),full)))

# ---- On an SM in software ----
EMULATOR    := $(abspath $(LIBRARY))/emulator
on_emulator = env CODA_CACHE_DIR=$(BUILD)/emulated CODA_CUDA_LIB=$(EMULATOR) CODA_LIBCUDA=$(EMULATOR)/libcuda.so.1 LD_LIBRARY_PATH=$(EMULATOR)
$(eval $(call job,emulated-chat,library,$(on_emulator) $(BUILD)/chat_test $(BUILD)/chat_server gpu captures ranks_gpu $(if $(FULL),states_gpu)))
$(eval $(call job,emulated-programs,library,test/model/programs.sh $(BUILD) $(LIBRARY)))
$(eval $(call job,emulated-checkpoints,library,$(on_emulator) $(BUILD)/$(MODEL_TEST) $(BUILD) brief_gpu quantised_gpu))
$(eval $(call job,emulated-pictures,library,test/picture/draw.sh $(BUILD) $(LIBRARY)))
$(eval $(call job,emulated-training,library,test/training/devices.sh $(BUILD) $(LIBRARY)))
EMULATE := emulated-training emulated-pictures emulated-chat emulated-programs emulated-checkpoints

# ---- Pages, help, a terminal, the house ----
$(eval $(call job,help,plain,$(TREE)/test/system/help.sh - $(addprefix $(BUILD)/,chat_server chat_load draw embed generate quantize train)))
$(eval $(call job,pages,library,env MAKEFLAGS= test/pages.sh $(LIBRARY)))
$(eval $(call job,terminal,library,test/terminal.sh $(BUILD) $(LIBRARY)))
$(eval $(call job,lint,plain,env MAKEFLAGS= $(IN) lint))
$(eval $(call job,locale,plain,env MAKEFLAGS= $(IN) BUILD=$(BUILD) locale))
HOUSE := help lint locale

# ---- Tiers ----
CHECK := chat chat-curl chat-page tokenizer model picture train $(HOUSE)
TEST  := nvrtc-encoders $(EMULATE) model-valgrind training train-asan model-asan picture-asan chat-asan chat-tsan tokenizer-asan $(FUZZERS) pages terminal $(CHECK)

.PHONY: check test test-full
check: $(call jobs,$(CHECK))
test test-full: $(call jobs,$(TEST))
