# Everything that developers and CI run. `make` lists it.

SETUP := tools/setup
PROFILE_TOOLS := --profile tools
# A failing test prints its message; a backtrace of an async runtime below it helps nobody.
export RUST_BACKTRACE := 0

.PHONY: help wasm demo bench-decision replay test check-fmt lint unit parity e2e size docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

wasm: ## Build the plugin: target/warmroute.wasm
	@$(SETUP)/build-wasm.sh

demo: wasm ## Run the plugin in Envoy before simulated workers and show what is routed where, and why
	cargo run $(PROFILE_TOOLS) --package warmroute-demo

bench-decision: wasm ## Measure how long the plugin takes for a decision, in its VM in Envoy
	cargo run $(PROFILE_TOOLS) --package warmroute-demo -- decisions

replay: ## Compare routing policies on traces and generated workloads; FULL=1: all of it, and write docs/routing-quality.md
	cargo run $(PROFILE_TOOLS) --package warmroute-replay -- $(if $(FULL),--full --docs docs)

# One after the other, the cheapest first, whatever -j says: each would slow the others down and mix up their output.
test: ## Run all that CI runs, the cheapest first
	@$(MAKE) --no-print-directory check-fmt
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory parity
	@$(MAKE) --no-print-directory e2e

check-fmt: ## Check the formatting
	@echo "== formatting"
	cargo fmt --all --check

lint: ## Run clippy, for the native targets and for the plugin, and check the documentation's links
	@echo "== clippy, native"
	cargo clippy --workspace --all-targets -- --deny warnings
	@echo "== clippy, the plugin"
	$(SETUP)/wasm-cargo.sh clippy --package warmroute --lib -- --deny warnings
	@$(MAKE) --no-print-directory docs

unit: ## Run all tests that need no Envoy
	@echo "== tests, native"
	cargo test --workspace --exclude warmroute-e2e

parity: ## Run the plugin's tests as WebAssembly, in Node
	@echo "== tests, in wasm"
	$(SETUP)/parity.sh

e2e: wasm ## Run the built plugin in a real Envoy against simulated workers
	@echo "== the plugin's imports and exports"
	@$(SETUP)/need.sh node nodejs
	node $(SETUP)/wasm-imports.mjs target/warmroute.wasm
	@echo "== tests, in Envoy"
	@$(SETUP)/need.sh curl
	cargo test --package warmroute-e2e --test envoy

size: wasm ## Print the plugin's size, plain and compressed
	@printf 'warmroute.wasm: %d bytes, %d compressed\n' \
		$$(wc -c <target/warmroute.wasm) $$(gzip -9 -c target/warmroute.wasm | wc -c)

docs: ## Build the API documentation; a broken link is an error
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items

clean: ## Remove all that was built; what set-up downloaded stays in the cache
	cargo clean
