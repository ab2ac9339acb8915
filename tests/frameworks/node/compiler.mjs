// Compiles files of the project, with the options of a Nest application. Returns what the compiler reports.

import { execFileSync } from 'node:child_process';

const OPTIONS = ['--strict', '--module', 'nodenext', '--target', 'es2022', '--skipLibCheck'];
const DECORATORS = ['--experimentalDecorators', '--emitDecoratorMetadata'];

export function compile(files, emits = false) {
  const words = [...OPTIONS, ...DECORATORS, ...(emits ? ['--allowJs', '--outDir', 'built'] : ['--noEmit']), ...files];
  try {
    execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', ...words], { encoding: 'utf8' });
  } catch (error) {
    return String(error.stdout);
  }
  return '';
}
