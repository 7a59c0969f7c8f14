# make            libcoda.so, libcoda.a and the tool coda, in build/
# make test       all that a CPU can prove
# make help       the other targets
# Variables: CUDA_HOME (toolkit), BUILD (output folder), HOSTILE=1 (small limits), SAN=address,undefined | thread

BUILD     ?= build
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda $(CURDIR)/build/cuda))
CC        ?= gcc
CXX       ?= g++

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
CFLAGS  ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread $(WARN) $(CFLAGS) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) \
	$(if $(HOSTILE),-DCODA_HOSTILE) -MMD -MP -Iinclude -Ilib -Ijit -Icache -Iprimitives -I$(BUILD) $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include)
LDLIBS   = -pthread -ldl -lm $(if $(SAN),-fsanitize=$(SAN))

SRC    := $(wildcard lib/*.c jit/*.c cache/*.c primitives/ref/*.c)
OBJ    := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/prim.o
PRIMS  := $(sort $(wildcard primitives/*.cuh primitives/*/*.cuh))
REFS   := $(sort $(wildcard primitives/ref/*.c))

all: $(BUILD)/libcoda.so $(BUILD)/libcoda.a $(BUILD)/coda

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

# The table of primitives and their sources, generated from the .cuh files.
$(BUILD)/embed: primitives/embed.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O1 $(WARN) $< -o $@
$(BUILD)/prim.c: $(BUILD)/embed $(PRIMS) $(REFS)
	$(BUILD)/embed primitives $(PRIMS:primitives/%=%) > $@.tmp && mv $@.tmp $@
$(BUILD)/prim.o: $(BUILD)/prim.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(BUILD)/libcoda.a: $(OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/libcoda.so: $(OBJ)
	$(CC) -shared -Wl,-soname,libcoda.so.0 -Wl,--no-undefined $^ -o $@ $(LDLIBS)

# ---- Tests ----
TESTS     := $(sort $(wildcard test/test_*.c))
TEST_OBJ  := $(TESTS:%.c=$(BUILD)/%.o) $(BUILD)/test/main.o $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/util_*.c))
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

$(BUILD)/test/suites.h: $(TESTS)
	@mkdir -p $(@D)
	@for f in $(TESTS:test/test_%.c=%); do echo "SUITE($$f)"; done > $@
$(BUILD)/test/main.o: $(BUILD)/test/suites.h
$(BUILD)/test/%.o: ALL_CFLAGS += -I$(BUILD)/test -Itest
$(BUILD)/unit: $(TEST_OBJ) $(BUILD)/libcoda.a
	$(CC) $^ -o $@ $(CHECK_LIBS) $(LDLIBS)
unit: $(BUILD)/unit
	CK_DEFAULT_TIMEOUT=300 $(BUILD)/unit

.PHONY: all unit
