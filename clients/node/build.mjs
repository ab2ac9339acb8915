// Compiles src into dist: `npm install <this folder>`, `npm pack` and `npm publish` run it ("prepare").
//
//   node build.mjs                          into dist, beside this file
//   node build.mjs OUT FOLDER               into OUT, with the compiler in FOLDER/node_modules
//
// npm links a folder that it installs without its devDependencies, so this fetches the compiler if it is missing.
// Declarations that no package entry leads to are left out: they describe internals.

import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const home = dirname(fileURLToPath(import.meta.url));
const [out = join(home, 'dist'), folder = home] = process.argv.slice(2).map((path) => resolve(path));
const modules = join(folder, 'node_modules');
const compiler = join(modules, 'typescript/bin/tsc');
const run = (words, cwd) => execFileSync(process.execPath, words, { cwd, stdio: 'inherit' });

if (!existsSync(compiler) && folder === home) {
  const npm = process.env.npm_execpath;
  if (!npm) throw new Error('the compiler is missing: run `npm install` in this folder');
  const words = [
    '--include=dev',
    '--global=false',
    '--no-save',
    '--no-package-lock',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
  ];
  run([npm, 'install', ...words, '--prefix', home], home);
}
rmSync(out, { recursive: true, force: true });
// The compiler looks for the types of frameworks in the folders around the sources.
const sources = folder === home ? home : mkdtempSync(join(folder, 'sources-'));
try {
  if (sources !== home)
    for (const name of ['package.json', 'tsconfig.json', 'src'])
      cpSync(join(home, name), join(sources, name), { recursive: true });
  run([compiler, '-p', sources, '--outDir', out, '--typeRoots', join(modules, '@types')], home);
} finally {
  if (sources !== home) rmSync(sources, { recursive: true });
}
copyFileSync(join(home, 'src/lock.lua'), join(out, 'lock.lua'));

const described = new Set();
const describe = (name) => {
  if (described.has(name)) return;
  described.add(name);
  for (const [, from] of readFileSync(join(out, name), 'utf8').matchAll(/from '\.\/(.+)\.js'/g))
    describe(`${from}.d.ts`);
};
const { exports } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
for (const { types } of Object.values(exports)) describe(basename(types));
for (const name of readdirSync(out)) if (name.endsWith('.d.ts') && !described.has(name)) rmSync(join(out, name));
