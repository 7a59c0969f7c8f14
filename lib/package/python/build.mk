# build.mk -- the Python package, a part of the Makefile. It wants Python's standard library, and the compiler of the library.
PYTHON       ?= python3
PACKAGE       = $(BUILD)/python/libcoda
# All headers that there are: a new one is in the binding at the next build.
BOUND_HEADERS = $(sort $(wildcard include/coda*.h))
PACKAGE_FROM  = lib/package/python/addresses.c $(wildcard lib/package/python/*.py lib/package/python/libcoda/*.py lib/package/python/libcoda/*/*.py)

python: $(PACKAGE)/.made ## the Python package libcoda, in build/python; the binding in it is made from the headers
$(PACKAGE)/.made: $(PACKAGE_FROM) $(wildcard include/coda*.h) | $(BUILD)/libcoda.so
	@rm -rf $(PACKAGE) && mkdir -p $(PACKAGE)
	@cp -R lib/package/python/libcoda/* $(PACKAGE)
	@$(PYTHON) lib/package/python/generate.py $(PACKAGE) $(BOUND_HEADERS)
	@$(CC) -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -nostdlib -s -Wl,--build-id=none,-z,noseparate-code \
		lib/package/python/addresses.c -o $(PACKAGE)/addresses.so
	@ln -sf ../../libcoda.so $(PACKAGE)/libcoda.so.0
	@rm -rf $(PACKAGE)-*.dist-info && $(PYTHON) lib/package/python/wheel.py $(PACKAGE)
	@touch $@
# The library of the wheel asks for no newer glibc than 2.28, on whatever system it is built.
OLD_GLIBC := $(if $(filter x86_64-%linux-gnu,$(shell $(CC) -dumpmachine)),$(BUILD)/wheel/old_glibc.o)
$(BUILD)/wheel/old_glibc.o: lib/package/python/old_glibc.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fno-builtin -c $< -o $@
$(BUILD)/wheel/libcoda.so: $(OBJ) lib/package/libcoda.map $(OLD_GLIBC)
	@mkdir -p $(@D)
	$(LINK_SHARED) $(OBJ) $(OLD_GLIBC) -o $@ $(if $(OLD_GLIBC),-Wl$(comma)--no-as-needed -l:libpthread.so.0 -l:libdl.so.2) $(LDLIBS)
wheel: $(PACKAGE)/.made $(BUILD)/wheel/libcoda.so ## the same as a wheel for every CPython 3 from 3.10, in build/wheel
	@rm -f $(BUILD)/wheel/*.whl
	@OBJCOPY='$(OBJCOPY)' $(PYTHON) lib/package/python/wheel.py $(PACKAGE) $(BUILD)/wheel/libcoda.so $(BUILD)/wheel
comma := ,
# PYTHON, or Debian's own if that alone has NumPy.
TEST_PYTHON = $$(for p in $(PYTHON) /usr/bin/python3; do \
	$$p -c 'import numpy' 2>/dev/null && echo $$p && exit; done; echo $(PYTHON))
test-python: $(PACKAGE)/.made $(BUILD)/libcoda.so wheel ## the Python package, with NumPy, PyTorch and JAX where PYTHON has these
	@BUILD=$(abspath $(BUILD)) PYTHONPATH=$(abspath $(BUILD))/python $(TEST_PYTHON) test/python/run.py

.PHONY: python wheel test-python
