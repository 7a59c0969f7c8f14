# make            libcoda.so, libcoda.a and the tool coda, in build/
# make demo       a LLaMA block from its formula to fused kernels, on any machine
# make test       all that a CPU can prove
# make help       the other targets
# make -C examples/serving help   whole models and a server: a unit of its own
# Variables: CUDA_HOME (toolkit, for tests that compile kernels), BUILD (output folder), HOSTILE=1 (small limits), SAN=address,undefined | thread

BUILD     ?= build
CUDA_HOME ?= $(firstword $(wildcard $(CURDIR)/build/cuda /usr/local/cuda))
OBJCOPY   ?= objcopy
PREFIX    ?= /usr/local
JOBS      ?= $(shell nproc 2>/dev/null || echo 2)
include lib/package/flags.mk
export CUDA_HOME CC CXX
# What tests and measurements start uses no multicast over NVLink.
export NCCL_NVLS_ENABLE := 0

ALL_CFLAGS = $(COMMON_CFLAGS) $(if $(HOSTILE),-DCODA_HOSTILE) \
	-Iinclude -Ilib $(ROOMS:%=-I%) -Ijit -Icache -Iprimitives -I$(BUILD) $(DEPS_INCLUDE)
DEPS_INCLUDE = $(patsubst %,-I%,$(wildcard build/deps/include))

ROOMS  := $(sort $(patsubst %/,%,$(dir $(wildcard lib/*/*.c))))
SRC    := $(wildcard lib/*.c lib/*/*.c jit/*.c cache/*.c primitives/closed_text.c primitives/ref/*.c)
# Rooms that plan keep nothing between calls (`make layers`). ThreadSanitizer, which looks at what threads share, takes theirs as
# they are in $FAKED, where a build gives it, but for programs, which runs read beside each other.
PLANNING := $(filter-out lib/schedule/variants.c,$(wildcard $(patsubst %,lib/%/*.c,rewrite program plan fuse schedule emit)))
UNSEEN := $(if $(and $(FAKED),$(filter thread,$(SAN))),$(filter-out lib/program/%,$(PLANNING)))
PRIMS  := $(sort $(wildcard primitives/*.cuh primitives/*/*.cuh))
REFS   := $(sort $(wildcard primitives/ref/*.c))
PACKERS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard lib/pack/*.c))

all: $(BUILD)/libcoda.so $(BUILD)/libcoda.a $(BUILD)/coda

# No rule that is built into make is wanted; that none of them makes the next line's files would be most of its time.
MAKEFLAGS += --no-builtin-rules
# Not those of builds that lie in this one: reading them all would be two thirds of a make that has nothing to do.
-include $(shell find $(BUILD) -mindepth 1 \( -name asan -o -name tsan -o -name serving \) -prune -o -name '*.d' -type f -print 2>/dev/null)

# Loops over rows of the CPU device and of packers become vectors; no reference reads errno or the floating-point exceptions.
CPU_ROWS := cpu_memory cpu_frame cpu_ports cpu_reduce cpu_steps
# Of a row's tail, n mod 16, references make no smaller vectors: a tenth of their code. GCC's option.
NO_EPILOGUES := $(if $(findstring Free Software,$(shell $(CC) --version)),--param vect-epilogues-nomask=0)
$(BUILD)/refs.o $(CPU_ROWS:%=$(BUILD)/lib/cpu/%.o): ALL_CFLAGS += $(NO_EPILOGUES)
$(BUILD)/refs.o $(CPU_ROWS:%=$(BUILD)/lib/cpu/%.o) $(PACKERS): ALL_CFLAGS += -ftree-vectorize -fvect-cost-model=dynamic -fno-math-errno -fno-trapping-math -ffp-contract=fast
# GCC follows the variables of dot.c's loops, of which each is there thirty times over, for as long as it compiles them.
$(BUILD)/lib/cpu/dot.o: ALL_CFLAGS += $(if $(NO_EPILOGUES),-fno-var-tracking-assignments)
# What checks, reads and prints is small rather than fast; the rooms that plan and what a run goes through are not among it.
COLD := $(filter-out lib/api/api_plan.c lib/api/api_bind.c jit/launch.c cache/digest.c, $(wildcard lib/api/*.c lib/grad/*.c \
	lib/profile/*.c lib/tune/*.c lib/emit/*.c jit/*.c cache/*.c lib/graph/infer*.c lib/graph/parse*.c lib/graph/graph_p*.c \
	lib/ranks/*.c lib/exec/agree.c lib/exec/carrier.c lib/exec/peers.c lib/schedule/exchange_rows.c lib/rewrite/*.c \
	lib/graph/graph_words.c lib/graph/mistake.c lib/graph/foreign.c lib/fuse/reasons*.c \
	lib/graph/graph_verify.c lib/graph/graph_args.c lib/graph/dims.c lib/graph/polynomial.c lib/graph/packed.c lib/graph/s*.c \
	lib/plan/*verify*.c lib/pack/source*.c lib/pack/pack_format.c lib/graph/bind.c \
	lib/plan_args.c lib/plan_texts.c lib/graph/graph_maps.c \
	lib/shapes/background.c lib/shapes/buckets.c lib/shapes/corners.c lib/shapes/every.c lib/shapes/family*.c \
	lib/exec/kernels.c lib/exec/kernel_table.c lib/exec/a*.c lib/exec/e*.c lib/exec/kept.c lib/exec/runner_exchange.c \
	lib/schedule/together.c lib/schedule/schedule_*.c lib/plan/beside.c lib/program/program_print.c lib/fuse/explain_fusion.c lib/cpu/cpu_exchange.c \
	lib/schedule/*_print.c lib/plan/plan_dot.c lib/rewrite/explain.c lib/base/debug.c lib/base/near.c lib/base/escape.c))
$(COLD:%.c=$(BUILD)/%.o): ALL_CFLAGS += $(if $(filter -O2,$(CFLAGS)),-Os)
# For sanitizers what of it takes no part in plans is not optimised: half of its compiler's time, and more than its tests lose.
COLDEST := $(filter-out $(addprefix lib/,rewrite/% fuse/% schedule/% emit/% plan/% shapes/%),$(COLD))
$(COLDEST:%.c=$(BUILD)/%.o) $(BUILD)/together/cold%.o: ALL_CFLAGS += $(if $(SAN),-O0)
# Most of the time of small files is their headers'. A build beside another one, of a sanitizer, has them in files of up to
# sixteen, but for those that have options of their own.
BESIDE := $(and $(FAKED),$(SAN))
ALONE  := cache/digest.c $(CPU_ROWS:%=lib/cpu/%.c) lib/cpu/dot.c $(wildcard lib/pack/*.c) lib/api/api_optimizer.c lib/emit/emit_delta.c
MANY   := $(if $(BESIDE),$(filter-out $(UNSEEN) $(REFS) $(ALONE),$(SRC)))
# The objects of C files, of which those of a line are one: $(call together,NAME,FILES)
together = $(patsubst %.c,%.o,$(shell mkdir -p $(BUILD)/together && awk -v most=16 -v to=$(BUILD)/together/$(1) -f test/house/together.awk \
	$(wildcard lib/*.h lib/*/*.h jit/*.h cache/*.h primitives/*.h include/*.h) $(2)))
OBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(UNSEEN) $(REFS) $(MANY),$(SRC))) $(UNSEEN:%.c=$(FAKED)/%.o) $(BUILD)/prim.o $(BUILD)/refs.o \
	$(if $(BESIDE),$(call together,cold,$(filter $(COLDEST),$(MANY))) $(call together,warm,$(filter-out $(COLDEST),$(MANY))))
# Names that one of them gives to an argument another one may give to a function. Where files clash after all, each is compiled alone.
$(BUILD)/together/%.o: ALL_CFLAGS += -I. -Wno-shadow
$(BUILD)/together/%.o: $(BUILD)/together/%.c $(BUILD)/builders.h
	$(CC) $(ALL_CFLAGS) -c $< -o $@ 2>/dev/null || { rm -f $@.*.o; for f in $$(sed -n 's/^#include "\(.*\)"/\1/p' $<); do \
	    $(CC) $(ALL_CFLAGS) -MT $@ -c $$f -o $@.$$(basename $$f .c).o || exit 1; done; $(CC) -r -nostdlib $@.*.o -o $@; }
# For sanitizers the rest is optimised for debuggers: a fifth less of the compiler's time. xxHash wants its functions inlined.
$(BUILD)/cache/digest.o: ALL_CFLAGS += $(if $(SAN),-O1)
# Nobody's functions are called from these rooms but by a map of the user's, so no exception passes through them, as it does
# through calls that visit a cache; a debugger has the tables of -g.
FRAMES := $(filter-out lib/api/api_cache.c lib/api/api_bundle.c, $(wildcard lib/*.c lib/*/*.c)) $(wildcard jit/*.c)
$(FRAMES:%.c=$(BUILD)/%.o) $(BUILD)/refs.o: ALL_CFLAGS += -fno-asynchronous-unwind-tables
# Nor is code of the rooms that plan aligned to the 16 bytes of a fetch: 20 kB of padding, and no instruction more.
TIGHT := $(wildcard $(patsubst %,lib/%/*.c,graph eval fuse schedule program plan shapes tune exec pack base)) lib/coda.c
$(TIGHT:%.c=$(BUILD)/%.o): ALL_CFLAGS += -falign-functions=1 -falign-jumps=1 -falign-loops=1
# These call their small functions: 5 kB less of a wheel, and a hundredth more instructions of a plan. Schedules would cost more.
$(patsubst %.c,$(BUILD)/%.o,$(filter-out lib/schedule/%,$(TIGHT))): ALL_CFLAGS += -fno-inline-functions
# Processors put instructions in an order themselves: as many in the order in which they were written are 2 % less of a wheel. GCC's option.
PLAIN := $(filter-out lib/cpu/% lib/pack/%,$(wildcard lib/*.c lib/*/*.c jit/*.c cache/*.c))
$(PLAIN:%.c=$(BUILD)/%.o): ALL_CFLAGS += $(if $(NO_EPILOGUES),-fno-schedule-insns2)
# The types of calls, which `make abi` reads, are here; -g1, by which tests are built, has lines alone.
$(BUILD)/lib/api/%.o: ALL_CFLAGS += $(if $(SAN),,$(if $(filter -g1,$(CFLAGS)),-g2))
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

# The table of primitives and their sources, generated from the .cuh files. It depends on their folders, too,
# which tell that a file has gone.
$(BUILD)/embed: $(sort $(wildcard primitives/embed/*.[ch])) primitives/prim.h primitives/sha256.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O1 $(WARN) -Iprimitives $(filter %.c,$^) -o $@
$(BUILD)/prim.c: $(BUILD)/embed $(PRIMS) $(REFS) $(sort $(dir $(PRIMS)))
	$(BUILD)/embed primitives $(PRIMS:primitives/%=%) > $@.tmp && mv $@.tmp $@
$(BUILD)/prim.o: $(BUILD)/prim.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@
# All references are one file: a hundred small ones take half as long so, and what several of them do alike is there once, a fifth of
# their code. What each of several calls by the same name has that of its file before it.
$(BUILD)/refs.c: $(REFS)
	@mkdir -p $(@D)
	@{ echo '#include "primitives/ref/ref.h"'; for f in $(REFS); do n=$${f##*/}; \
	    for w in init push merge finish fold fold_of fold_v2 fold_v3 fold_v4; do echo "#undef $$w"; echo "#define $$w $${n%.c}_$$w"; done; \
	    echo "#include \"$$f\""; done; } > $@
$(BUILD)/refs.o: $(BUILD)/refs.c
	$(CC) $(ALL_CFLAGS) -I. -c $< -o $@

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
LINK_SHARED = $(CC) -shared -Wl,-soname,libcoda.so.0 -Wl,--no-undefined -Wl,--gc-sections -Wl,--version-script=lib/package/libcoda.map
$(BUILD)/libcoda.so: $(OBJ) lib/package/libcoda.map
	$(LINK_SHARED) $(OBJ) -o $@ $(LDLIBS)
	@ln -sf libcoda.so $(BUILD)/libcoda.so.0

# ---- The tool and the examples: users of coda.h alone ----
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))
TOOL_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/coda/*.c))

$(BUILD)/examples/%.o: ALL_CFLAGS += -Iexamples $(if $(SAN),-O0)
$(BUILD)/coda: $(TOOL_OBJ) $(BUILD)/libcoda.a
	$(CC) $^ -o $@ $(LDLIBS)
$(BUILD)/examples/%: $(BUILD)/examples/%.o $(BUILD)/libcoda.so
	$(CC) $< -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(LDLIBS)
examples: $(EXAMPLES)
programs: # names all programs, for the test of their --help
	@echo $(BUILD)/coda $(EXAMPLES) $(PERF:%=$(BUILD)/perf/%)

deps: ## installs what the tests miss: packages by apt, CUDA 13 by Python wheels
	@.ci/deps
demo: ## builds the library and runs examples/llama_block.c (DEMO=--cpu: as if there were no GPU)
	@.ci/deps demo
	@echo 'building libcoda, the tool and the demo'
	@COUNT='find $(BUILD) -name "*.o" | wc -l' ALL=$(words $(OBJ) $(TOOL_OBJ) libcoda.o llama_block.o) \
	    .ci/progress building $(MAKE) --no-print-directory -s -j$(JOBS) all $(BUILD)/examples/llama_block
	@$(BUILD)/examples/llama_block $(DEMO)

PARTS := lib/package/python/build.mk perf/build.mk test/build.mk
include $(PARTS)

# ---- Installation: lib/package/README.md ----
VERSION  = $(shell sed -n 's/.*CODA_VERSION_STRING "\(.*\)"/\1/p' include/coda.h)
HEADERS := include/coda.h include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h
LIBDIR  ?= lib
D        = $(DESTDIR)$(PREFIX)
L        = $(D)/$(LIBDIR)
GRAPHS  := $(notdir $(wildcard examples/graphs/*.coda))
PAGES   := README.md ENVIRONMENT.md CHANGELOG.md LICENSE
MANUAL  := coda.1 coda-cache.1
# A page, or a link to one, for each function and each type with a name: `make doc` makes them.
PAGES3   = $(shell sed -n -f lib/package/manual/pages.sed $(HEADERS) | sort -u)
CONFIGS := coda-config.cmake coda-config-version.cmake
INSTALLED = $(HEADERS) include/coda.hpp $(addprefix $(LIBDIR)/,libcoda.so.0 libcoda.so libcoda.a pkgconfig/coda.pc cps/coda.cps $(CONFIGS:%=cmake/coda/%)) \
	bin/coda $(MANUAL:%=share/man/man1/%) $(PAGES3:%=share/man/man3/%) share/man/man7/coda.7 share/doc/coda/coda.html $(GRAPHS:%=share/coda/graphs/%) $(PAGES:%=share/doc/coda/%)
FILL     = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@MINOR@|$(basename $(VERSION))|' \
	-e 's|@UP@|$(shell echo $(LIBDIR) | sed 's/[^/][^/]*/../g')|'

# The manual. It runs the tool, and is never committed.
MANUAL_FROM := $(HEADERS) ENVIRONMENT.md lib/graph/graph_parse.c $(wildcard lib/package/manual/*)
doc: $(BUILD)/doc/coda.html ## the manual: man pages of coda.h, and all of it in build/doc/coda.html
$(BUILD)/doc/coda.html: $(MANUAL_FROM) $(BUILD)/coda
	@lib/package/manual/manual.sh $(BUILD)/coda $(BUILD)/doc

install: all doc install-library ## all that is needed to build and run programs, into $DESTDIR$PREFIX; PREFIX=/usr/local, LIBDIR=lib
	install -d $(sort $(dir $(INSTALLED:%=$(D)/%)))
	install -m 755 $(BUILD)/coda $(D)/bin
	install -m 644 $(MANUAL:%=examples/coda/%) $(D)/share/man/man1
	install -m 644 $(PAGES3:%=$(BUILD)/doc/man3/%) $(D)/share/man/man3
	install -m 644 $(BUILD)/doc/man7/coda.7 $(D)/share/man/man7
	install -m 644 $(BUILD)/doc/coda.html $(D)/share/doc/coda
	install -m 644 $(GRAPHS:%=examples/graphs/%) $(D)/share/coda/graphs
	install -m 644 $(PAGES) $(D)/share/doc/coda
	@[ -n "$(DESTDIR)" ] || lib/package/loader.sh '$(PREFIX)/$(LIBDIR)'
# Headers whose text is as it was keep their time, so that who includes them is not compiled again.
install-library: $(BUILD)/libcoda.so $(BUILD)/libcoda.a ## of that the library, its headers and what finds them
	install -d $(D)/include $(L)/pkgconfig $(L)/cps $(L)/cmake/coda
	install -C -m 644 $(HEADERS) include/coda.hpp $(D)/include
	install -m 755 $(BUILD)/libcoda.so $(L)/libcoda.so.0
	ln -sf libcoda.so.0 $(L)/libcoda.so
	install -m 644 $(BUILD)/libcoda.a $(L)
	$(FILL) lib/package/coda.pc.in > $(L)/pkgconfig/coda.pc
	$(FILL) lib/package/coda.cps.in > $(L)/cps/coda.cps
	for f in $(CONFIGS); do $(FILL) lib/package/$$f.in > $(L)/cmake/coda/$$f || exit 1; done
# For examples/serving, which links a library that is installed.
$(BUILD)/stage/lib/libcoda.so.0: $(BUILD)/libcoda.so $(BUILD)/libcoda.a $(wildcard include/* lib/package/*.in)
	@$(MAKE) --no-print-directory -s install-library PREFIX=$(abspath $(BUILD))/stage DESTDIR= LIBDIR=lib
	@[ ! -d build/cuda ] || ln -sfn '$(CURDIR)/build/cuda' $(@D)/cuda # where a library looks for NVRTC: beside itself
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
	@awk -F ':.*## ' '/^[a-z_-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile $(PARTS)

.PHONY: all examples programs deps demo doc install install-library uninstall deb clean help
