# perf/build.mk -- measurements: users of coda.h alone; all but latency and start need a GPU, ranks two. A part of the Makefile.

PERF      := gemm fused quant epilogue layer token backward invariant attention row_sums encoder shapes host latency start cpu ranks
PERF_OBJ  := $(patsubst %,$(BUILD)/perf/%.o,bench replay sustained power data report report_figure reference machine block options)
CASES     ?=
PERF_ARGS ?=

$(BUILD)/perf/%.o: ALL_CFLAGS += -Iexamples -Iperf
$(BUILD)/perf/%: $(BUILD)/perf/%.o $(PERF_OBJ) $(BUILD)/libcoda.so
	$(CC) $(filter %.o,$^) -o $@ -L$(BUILD) -lcoda -Wl,-rpath,'$$ORIGIN/..' $(LDLIBS)
$(BUILD)/perf/ranks: $(BUILD)/perf/ranks_graphs.o
$(BUILD)/perf/backward: $(addprefix $(BUILD)/perf/backward_,check.o floor.o graphs.o)
.SECONDARY: $(PERF_OBJ) $(PERF:%=$(BUILD)/perf/%.o)
perf-build: $(PERF:%=$(BUILD)/perf/%)
perf: ## measures on the GPU, into perf/results/CARD (CASES='gemm/DxD /4096', PERF_ARGS=--quick)
	@$(MAKE) --no-print-directory -j$(JOBS) perf-build
	@for p in $(PERF); do $(BUILD)/perf/$$p $(PERF_ARGS) $(CASES) || bad=1; done; \
	[ -n "$(CASES)" ] || $(BUILD)/perf/layer --sustained --out sustained $(PERF_ARGS) layer/ block/ || bad=1; \
	exit $${bad:-0}
perf-tuned: ## tunes every product, forty tiles each: is the price right? (minutes)
	@$(MAKE) --no-print-directory -j$(JOBS) perf-build
	@for p in gemm fused; do \
	    $(BUILD)/perf/$$p --max-autotune --out tuned_$$p $(PERF_ARGS) $(CASES) || bad=1; \
	done; exit $${bad:-0}
perf-torch: $(PACKAGE)/.made ## the same beside PyTorch, if python3 has it (TORCH_ARGS='--all --max-autotune --jax', MARLIN=, LLAMA=)
	@CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/pytorch.py $(TORCH_ARGS) $(CASES)
	@[ -n "$(CASES)" ] || CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/sustained.py
	@[ -n "$(CASES)" ] || CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/serving.py
	@[ -n "$(CASES)" ] || CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/families.py
	@[ -n "$(CASES)" ] || CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/quant_peers.py $(if $(MARLIN),--marlin $(MARLIN)) $(if $(LLAMA),--llama $(LLAMA))
perf-backward: $(PACKAGE)/.made ## backward passes beside PyTorch, and XLA by TORCH_ARGS=--jax
	@CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/backward.py $(TORCH_ARGS) $(CASES)
perf-training: $(PACKAGE)/.made ## whole steps of training beside torch.compile's, and losses beside PyTorch's
	@CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/training.py $(TORCH_ARGS) $(CASES)
perf-dynamo: $(PACKAGE)/.made ## models of transformers by torch.compile, beside Inductor (TORCH_ARGS='--max-autotune --layers 8')
	@CODA_LIBRARY=$(BUILD)/libcoda.so python3 perf/dynamo.py $(TORCH_ARGS) $(CASES)
perf-cpu: $(PACKAGE)/.made ## the CPU device beside PyTorch or NumPy, if PYTHON has them; whole models with LLAMA_BENCH=, MINILM=
	@$(PYTHON) perf/cpu_peers.py --library $(BUILD)/libcoda.so $(CASES)
	@[ -z "$(LLAMA_BENCH)$(MINILM)" ] || $(MAKE) --no-print-directory -s -C examples/serving
	@[ -z "$(LLAMA_BENCH)" ] || $(PYTHON) examples/serving/perf/cpu_models.py --stories $(LLAMA_BENCH)
	@[ -z "$(MINILM)" ] || $(PYTHON) examples/serving/perf/cpu_models.py --minilm $(MINILM)
perf-report: ## perf/results beside their bars, as charts, and as the table of perf/README.md
	@perf/publish

.PHONY: perf perf-build perf-tuned perf-torch perf-backward perf-training perf-dynamo perf-cpu perf-report
