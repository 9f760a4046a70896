// Bundles the console into the Python package. `--out DIR` writes elsewhere, `--watch` builds again on every change.
import * as esbuild from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({ options: { out: { type: "string" }, watch: { type: "boolean" } } });
const out = resolve(values.out ?? join(here, "../src/enmasse/console/static"));
const shared = { absWorkingDir: here, bundle: true, minify: true, metafile: true, target: "es2022", legalComments: "none" };

// The system's fonts are used, and no pictures behind pages: PatternFly's own would be half a megabyte of the wheel.
const withoutAssets = {
  name: "without-assets",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => ({
      contents: (await readFile(path, "utf8"))
        .replace(/@font-face\s*{[^}]*}/g, "")
        .replace(/url\("\.\/assets\/[^)]*\)/g, "none"),
      loader: "css",
    }));
  },
};

// A page that is loaded later would come without its styles: all CSS that the bundled scripts ask for is one file, the
// foundation first and our own last.
function stylesheet({ inputs, outputs }) {
  const bundled = Object.values(outputs).flatMap((output) =>
    Object.keys(output.inputs).filter((path) => output.inputs[path].bytesInOutput > 0),
  );
  const asked = new Set(bundled.flatMap((path) => inputs[path].imports.map((imported) => imported.path)));
  const css = [...asked].filter((path) => path.endsWith(".css"));
  const rank = (path) => (path.includes("/dist/styles/base") ? 0 : path.startsWith("src/") ? 2 : 1);
  css.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return css.map((path) => `@import "./${path}";`).join("\n");
}

// PatternFly has drawn most of its icons from this package, which it names among those that it is built with alone.
const icons = `@fortawesome/free-solid-svg-icons 5.15.4 (CC-BY-4.0)

Font Awesome Free, copyright Fonticons, Inc. (https://fontawesome.com). Its icons are under the licence Creative Commons
Attribution 4.0 International (https://creativecommons.org/licenses/by/4.0/). Of these, PatternFly has made components
of React, of which the console has some.
`;

/**
 * The licences of all packages that are bundled, which ask to be kept with what is made of them. The package's own
 * list of what it contains is read from here, too: a line "name version (licence)" before each text.
 */
async function licences(inputs) {
  const packages = new Set(Object.keys(inputs).flatMap((path) => path.match(/^node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0] ?? []));
  const texts = [...packages].map(async (path) => {
    const { name, version, license } = JSON.parse(await readFile(join(here, path, "package.json"), "utf8"));
    const file = (await readdir(join(here, path))).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no file with its licence: find its text, and keep it here`);
    return `${name} ${version} (${license})\n\n${(await readFile(join(here, path, file), "utf8")).trim()}\n`;
  });
  return [icons, ...(await Promise.all(texts))].sort().join(`\n${"-".repeat(72)}\n\n`);
}

async function build() {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const scripts = await esbuild.build({
    ...shared,
    entryPoints: ["src/main.tsx"],
    outdir: out,
    format: "esm",
    splitting: true,
    jsx: "automatic",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    define: { "process.env.NODE_ENV": '"production"' },
    loader: { ".css": "empty" },
  });
  const styles = await esbuild.build({
    ...shared,
    stdin: { contents: stylesheet(scripts.metafile), resolveDir: here, loader: "css", sourcefile: "console.css" },
    outdir: out,
    entryNames: "console-[hash]",
    plugins: [withoutAssets],
  });
  const made = [...Object.entries(scripts.metafile.outputs), ...Object.entries(styles.metafile.outputs)];
  const named = (test) => basename(made.find(([path, output]) => test(path, output))[0]);
  const page = (await readFile(join(here, "src/index.html"), "utf8"))
    .replace("main.js", named((_, output) => output.entryPoint === "src/main.tsx"))
    .replace("console.css", named((path) => path.endsWith(".css")));
  await writeFile(join(out, "index.html"), page);
  await writeFile(join(out, "licences.txt"), await licences({ ...scripts.metafile.inputs, ...styles.metafile.inputs }));
  const bytes = made.reduce((sum, [, output]) => sum + output.bytes, 0);
  console.log(`${made.length + 2} files, ${(bytes / 1024).toFixed(0)} KiB in ${out}`);
}

await build();
if (values.watch) {
  const { watch } = await import("node:fs");
  let due;
  watch(join(here, "src"), { recursive: true }, () => {
    clearTimeout(due);
    due = setTimeout(() => build().catch((error) => console.error(error.message)), 100);
  });
}
