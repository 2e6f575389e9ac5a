# Everything that developers and CI run. `make` lists it.

SETUP := tools/setup
PROFILE_TOOLS := --profile tools
# A failing test prints its message; a backtrace of an async runtime below it helps nobody.
export RUST_BACKTRACE := 0

.PHONY: help wasm noop-wasm rehearsal-wasm demo bench bench-growth bench-page bench-decision micro quality replay fuzz fuzz-corpus mutate soak \
	test check-fmt lint unit instructions parity e2e size docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

wasm: ## Build the plugin: target/warmroute.wasm
	@$(SETUP)/build-wasm.sh

noop-wasm: ## Build the filter that does nothing, which the plugin is compared with: target/noop.wasm
	@$(SETUP)/build-wasm.sh --package warmroute-noop-filter --output noop.wasm

rehearsal-wasm: ## Build the plugin as its next version may be, for tests of upgrade and crash: target/rehearsal.wasm
	@$(SETUP)/build-wasm.sh --features rehearsal --output rehearsal.wasm

demo: wasm ## Run the plugin in Envoy before simulated workers and show what is routed where, and why
	cargo run $(PROFILE_TOOLS) --package warmroute-demo

bench: wasm noop-wasm ## Measure what the plugin costs beside plain Envoy and others; PEERS=1: other routers too; FULL=1: every combination
	cargo run $(PROFILE_TOOLS) --package warmroute-bench -- cost $(if $(PEERS),--peers) $(if $(FULL),--full)

bench-growth: wasm ## Measure how the cost grows with bodies, workers, index, threads and metrics pages
	cargo run $(PROFILE_TOOLS) --package warmroute-bench -- growth

bench-page: ## Write docs/performance.md and its plots from what bench, bench-growth and micro have measured
	cargo run $(PROFILE_TOOLS) --package warmroute-bench -- render --docs docs

bench-decision: wasm ## Measure how long the plugin takes for a decision, in its VM in Envoy
	cargo run $(PROFILE_TOOLS) --package warmroute-demo -- decisions

micro: ## Show where a request's microseconds go in the plugin: stages, host calls, and the same stages natively
	@$(SETUP)/build-wasm.sh --features stage-times --output warmroute-stages.wasm
	cargo bench $(PROFILE_TOOLS) --package warmroute-micro --bench stages
	cargo run $(PROFILE_TOOLS) --package warmroute-micro --bin warmroute-micro -- vm

quality: wasm ## Compare routing over HTTP with Envoy's own; PEERS=1: other routers too; SEEDS=2; DOCS=1: write docs/routing-quality-http.md
	cargo run $(PROFILE_TOOLS) --package warmroute-demo -- quality \
		$(if $(PEERS),--peers) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(DOCS),--docs docs)

replay: ## Compare routing policies on traces and generated workloads; FULL=1: all of it, and write docs/routing-quality.md
	cargo run $(PROFILE_TOOLS) --package warmroute-replay -- $(if $(FULL),--full --docs docs)

fuzz: ## Throw bytes at the parsers and state machines with cargo-fuzz; TARGET=request: one of them; MINUTES=20: of each, else 1
	@$(SETUP)/fuzz.sh run "$(TARGET)" "$(MINUTES)"

fuzz-corpus: ## Make the smallest inputs that cover what fuzzing has found fuzz/corpus, which the tests replay; TARGET=request
	@$(SETUP)/fuzz.sh keep "$(TARGET)"

mutate: wasm ## Send mutated requests of every format through the plugin in Envoy; REQUESTS=100000 unless told otherwise
	MUTATED_REQUESTS=$(or $(REQUESTS),100000) cargo test --workspace --test envoy -- --nocapture --exact \
		mutations::every_mutated_request_reaches_a_worker_byte_by_byte_and_is_answered

soak: wasm ## Keep Envoy under load while workers, configurations and clients fail; MINUTES=60: so long, else 5; SEED=1; LISTED=1: static lists
	cargo run $(PROFILE_TOOLS) --package warmroute-soak -- --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(if $(LISTED),--listed)

# One after the other, the cheapest first, whatever -j says: each would slow the others down and mix up their output.
test: ## Run all that CI runs, the cheapest first
	@$(MAKE) --no-print-directory check-fmt
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory instructions
	@$(MAKE) --no-print-directory parity
	@$(MAKE) --no-print-directory e2e

check-fmt: ## Check the formatting
	@echo "== formatting"
	cargo fmt --all --check

lint: ## Run clippy, for the native targets and for the plugin, and check the documentation's links
	@echo "== clippy, native"
	cargo clippy --workspace --all-targets -- --deny warnings
	@echo "== clippy, the plugin"
	$(SETUP)/wasm-cargo.sh clippy --package warmroute --package warmroute-noop-filter --lib -- --deny warnings
	@$(MAKE) --no-print-directory docs

unit: ## Run all tests that need no Envoy
	@echo "== tests, native"
	cargo test --workspace --exclude warmroute-e2e

instructions: ## Hold the native core's instruction counts to their baseline; ACCEPT=1: make the new counts the baseline
	@echo "== instructions"
	@$(SETUP)/need.sh valgrind
	CARGO_PROFILE_RELEASE_STRIP=none cargo run --release --package warmroute-micro --no-default-features \
		--bin warmroute-instructions -- $(if $(ACCEPT),accept)

parity: ## Run the plugin's tests as WebAssembly, in Node
	@echo "== tests, in wasm"
	$(SETUP)/parity.sh

# Of the whole workspace, so that what `unit` built is not built once more with fewer features.
e2e: wasm noop-wasm rehearsal-wasm ## Run the built plugin in a real Envoy against simulated workers
	@echo "== the plugin's imports and exports"
	@$(SETUP)/need.sh node nodejs
	node $(SETUP)/wasm-imports.mjs target/warmroute.wasm
	@echo "== tests, in Envoy"
	@$(SETUP)/need.sh curl
	cargo test --workspace --test envoy

size: wasm ## Print the plugin's size, plain and compressed
	@printf 'warmroute.wasm: %d bytes, %d compressed\n' \
		$$(wc -c <target/warmroute.wasm) $$(gzip -9 -c target/warmroute.wasm | wc -c)

docs: ## Build the API documentation; a broken link is an error
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items

clean: ## Remove all that was built; what set-up downloaded stays in the cache
	cargo clean
