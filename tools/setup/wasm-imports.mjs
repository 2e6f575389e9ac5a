// Lists what a .wasm file imports, and fails unless Envoy has all of it and the ABI's version is exported.
//
//   node tools/setup/wasm-imports.mjs target/warmroute.wasm
//
// A module that imports anything else loads nowhere: Envoy refuses it at start, which is late to learn of a stray
// `std::fs`, sleep or contended lock. The four WASI calls are what the standard library's start, environment and
// panic message need.
import { readFileSync } from 'node:fs';

const WASI = new Set(['environ_get', 'environ_sizes_get', 'fd_write', 'proc_exit']);
const ABI = 'proxy_abi_version_0_2_1';

const [, , file] = process.argv;
if (!file) {
  console.error('usage: node wasm-imports.mjs FILE.wasm');
  process.exit(2);
}

const module = new WebAssembly.Module(readFileSync(file));
const isKnown = ({ module: from, name }) =>
  (from === 'env' && name.startsWith('proxy_')) || (from === 'wasi_snapshot_preview1' && WASI.has(name));

const imports = WebAssembly.Module.imports(module);
for (const { module: from, name } of imports) console.log(`${from}.${name}`);

const strangers = imports.filter((entry) => !isKnown(entry));
for (const { module: from, name } of strangers) console.error(`${file}: imports ${from}.${name}, which Envoy lacks`);
const exportsAbi = WebAssembly.Module.exports(module).some(({ name }) => name === ABI);
if (!exportsAbi) console.error(`${file}: does not export ${ABI}, so Envoy does not take it for a plugin`);
process.exit(strangers.length > 0 || !exportsAbi ? 1 : 0);
