// Opens the pages in a real browser, in the sizes of a desk and a phone. The pages fetch nothing,
// leave the console empty, draw every figure, and show the numbers of --json. Tooltips, keys,
// sorting, views and downloads work.
//
// FLASHSIFT is the path of the program (target/debug/flashsift). Without Chromium every test is
// skipped, by name.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { accessSync, constants, copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../../../..", import.meta.url));
const flashsift = resolve(root, process.env.FLASHSIFT ?? "target/debug/flashsift");
const trace = join(root, "testdata/browser.parquet");
const executablePath = ["chromium", "chromium-browser", "google-chrome"]
  .flatMap((name) => (process.env.PATH ?? "").split(":").map((dir) => join(dir, name)))
  .find((path) => { try { accessSync(path, constants.X_OK); return true; } catch { return false; } });
const skip = executablePath ? false : "Chromium is not installed";
if (skip) console.log(`SKIPPED pages in a browser: ${skip}`);

const axe = fileURLToPath(import.meta.resolve("axe-core/axe.min.js"));
const PHONE = { width: 360, height: 740 };
// Other tests keep the machine busy meanwhile.
const PATIENCE_MS = 300_000;
const DESK = { width: 1440, height: 900 };

// No files, no times.
const few = join(mkdtempSync(join(tmpdir(), "flashsift-few-")), "few.txt");
writeFileSync(few, "r 8\nw 16\nr 8\n".repeat(20));

let folder, browser;
before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), "flashsift-pages-"));
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});
after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true });
  rmSync(dirname(few), { recursive: true });
});

/** Runs flashsift; its lines of JSON, and the page that it wrote. */
function run(name, ...args) {
  const page = join(folder, `${name}.html`);
  const out = execFileSync(flashsift, [...args, "--json", "--report", page], {
    encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 28,
  });
  return { page, lines: out.trim().split("\n").map((line) => JSON.parse(line)) };
}

/** Opens a page; a message in its console or a fetch fails the test. */
async function open(path, options = {}) {
  const context = await browser.newContext({ viewport: DESK, acceptDownloads: true, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  const url = pathToFileURL(path).href;
  page.on("request", (request) => {
    if (![url, "data:", "blob:"].some((known) => request.url().startsWith(known))) problems.push(`fetched: ${request.url()}`);
  });
  await page.goto(url);
  return { page, done: async () => { assert.deepEqual(problems, []); await context.close(); } };
}

const data = (page, id) =>
  page.locator(`#${id} script[type="application/json"]`).evaluate((e) => JSON.parse(e.textContent));

/** Faults in the visible figures: text outside its drawing or on other text, and figures without marks. */
const drawing = () => {
  const wrong = [];
  for (const figure of document.querySelectorAll("figure")) {
    const seen = [...figure.querySelectorAll(".view svg")].filter((svg) => svg.getClientRects().length);
    if (!seen.length) wrong.push(`${figure.id}: no drawing is seen`);
    for (const svg of seen) {
      const marks = [...svg.querySelectorAll(".series path, .series rect")].filter((mark) => mark.getBBox().width + mark.getBBox().height > 0);
      if (!marks.length) wrong.push(`${figure.id}: nothing is drawn`);
      const whole = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]).filter(([t]) => t.trim());
      texts.forEach(([text, box], n) => {
        if (box.left < whole.left - 12 || box.right > whole.right + 24 || box.bottom > whole.bottom + 4)
          wrong.push(`${figure.id}: "${text}" stands outside`);
        for (const [other, its] of texts.slice(n + 1)) {
          const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
          const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
          if (across > 2 && down > 4) wrong.push(`${figure.id}: "${text}" stands upon "${other}"`);
        }
      });
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return wrong;
};

/** Chooses every view of every figure in turn. */
async function everyView(page, check) {
  assert.deepEqual(await page.evaluate(drawing), []);
  const most = await page.evaluate(() => Math.max(0, ...[...document.querySelectorAll(".choice")].map((c) => c.children.length)));
  for (let n = 0; n < most; n++) {
    await page.evaluate((n) => document.querySelectorAll(".choice").forEach((c) => c.children[n]?.querySelector("input").click()), n);
    assert.deepEqual(await page.evaluate(drawing), [], `view ${n}`);
    await check?.(n);
  }
}

// One page has all policies; the others show as much with some of them.
const some = process.env.PAGES_LONG ? [] : ["--policy", "fifo,lru,clock,arc,mglru,for-plus,belady"];

for (const [name, args] of [
  ["all policies", ["compare", trace]],
  ["drained, few policies", ["compare", trace, "--policy", "lru,arc,spatialclock", "--memory", "4MiB,16MiB", "--drain"]],
  ["one size", ["compare", trace, ...some, "--memory", "16MiB"]],
  ["on devices", ["compare", trace, ...some, "--device", "microsd-2012,emmc-5.1,latency-100-800", "--memory", "4MiB,16MiB,64MiB"]],
  ["one policy at one size", ["compare", trace, "--policy", "lru", "--memory", "16MiB"]],
  ["systems", ["compare", trace, "--system", "all", "--device", "ufs-3.1", "--memory", "4MiB,16MiB", "--writeback", "hf"]],
  ["sizes of memory", ["compare", trace, "--system", "storage,flush-nvm:pages=64,flush-nvm:pages=256,flush-nvm:pages=1024,hybrid-flush:pages=64,hybrid-flush:pages=256", "--device", "ufs-3.1,emmc-5.1", "--memory", "4MiB", "--writeback", "hf"]],
  ["read-aheads", ["compare", trace, "--readahead", "off,linux:16k,linux:128k,linux:512k,paper:16,paper:32", "--memory", "4MiB,16MiB", "--device", "ufs-3.1,emmc-5.1"]],
  ["read-aheads of one size", ["compare", trace, "--readahead", "off,linux:128k", "--policy", "lru,arc", "--memory", "16MiB"]],
  ["sifters at one size", ["compare", trace, "--sift", "all", "--memory", "16MiB", "--metadata", "ext4"]],
  ["sifters by memory", ["compare", trace, "--sift", "all,random:p=0.25", "--memory", "8MiB,16MiB,64MiB", "--device", "ufs-3.1,emmc-5.1"]],
  ["one sifter", ["compare", trace, "--sift", "touch"]],
  ["a description with sifters", ["describe", trace, "--sift"]],
  ["two modes of write-back", ["compare", trace, "--policy", "lru,arc,belady", "--memory", "4MiB,16MiB", "--writeback", "linux", "--writeback", "evict"]],
  ["two modes at one size", ["compare", trace, ...some, "--memory", "16MiB", "--writeback", "hf", "--writeback", "linux,cluster:128KiB"]],
  ["a description", ["describe", trace]],
  ["a description of a game", ["describe", join(root, "testdata/game.parquet")]],
  ["a description of a few requests", ["describe", join(root, "crates/cli/tests/end_to_end/describe.strace")]],
  ["a description of what knows little", ["describe", few]],
]) {
  test(`${name}: drawn on a desk, on a phone, in the dark and on paper`, { skip }, async () => {
    const { page: path } = run("drawn", ...args);
    for (const options of [{ viewport: DESK }, { viewport: PHONE }, { viewport: DESK, colorScheme: "dark" }]) {
      const { page, done } = await open(path, options);
      await everyView(page);
      await done();
    }
    const { page, done } = await open(path);
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.locator(".tools, .choice, nav").evaluateAll((all) => all.filter((e) => e.getClientRects().length).length), 0);
    assert.deepEqual(await page.evaluate(drawing), []);
    await done();
  });
}

test("the page has the numbers of --json", { skip }, async () => {
  const { page: path, lines } = run("numbers", "compare", trace);
  const { page, done } = await open(path);
  const key = (policy, bytes) => `${policy} ${bytes}`;
  const cells = new Map(lines.map((cell) => [key(cell.policy, cell.memory_bytes), cell]));
  const measures = {
    "hit-ratio": (cell) => cell.hits / cell.accesses,
    "writes": (cell) => cell.device_writes + cell.dirty_left,
    "non-sequential": (cell) => cell.nonsequential_writes,
    "cost": (cell) => cell.cost_us,
  };
  for (const [id, measure] of Object.entries(measures)) {
    const { rows } = await data(page, id);
    assert.equal(rows.length, cells.size, id);
    for (const [, , policy, bytes, value] of rows) {
      assert.ok(Math.abs(value - measure(cells.get(key(policy, bytes)))) < 1e-12, `${id} ${policy} ${bytes}: ${value}`);
    }
  }
  const fates = await data(page, "fate-of-writes");
  const sizes = [...new Set(lines.map((cell) => cell.memory_bytes))].sort((a, b) => a - b);
  const views = [...new Set(fates.rows.map(([view]) => view))];
  assert.equal(views.length, sizes.length);
  for (const cell of lines) {
    const of = (part) => fates.rows.find(([view, , name, , policy]) =>
      view === views[sizes.indexOf(cell.memory_bytes)] && name === part && policy === cell.policy)[3];
    assert.equal(of("written to storage"), cell.device_writes);
    assert.equal(of("still dirty at the end"), cell.dirty_left);
    assert.equal(of("deleted or truncated first"), cell.dropped_dirty);
    assert.equal(of("written to storage") + of("still dirty at the end") + of("deleted or truncated first") +
      of("overwritten in memory first"), cell.write_accesses);
  }
  const table = await page.locator("#table-0 tbody tr").evaluateAll((rows) =>
    rows.map((row) => [row.cells[0].textContent.split(" ")[0], ...[...row.cells].slice(1).map((c) => Number(c.dataset.v))]));
  for (const [policy, ratio, reads, writes] of table) {
    const cell = cells.get(key(policy, sizes[0]));
    assert.ok(Math.abs(ratio - cell.hits / cell.accesses) < 1e-12);
    assert.deepEqual([reads, writes], [cell.device_reads, cell.device_writes]);
  }
  // The position of a value's marker agrees with the labels of the axis.
  const placed = await page.locator("#hit-ratio svg.wide").evaluate((svg) => {
    const ticks = [...svg.querySelectorAll("text.label")].filter((t) => t.textContent.endsWith("%"))
      .map((t) => [parseFloat(t.textContent) / 100, t.getBBox().y + t.getBBox().height / 2]);
    const series = [...svg.querySelectorAll(".series")].find((g) => g.dataset.n === "lru");
    return { ticks, ys: [...series.querySelectorAll("circle")].map((c) => Number(c.getAttribute("cy"))) };
  });
  const [[low, y_low], [high, y_high]] = [placed.ticks[0], placed.ticks.at(-1)];
  const lru = sizes.map((bytes) => cells.get(key("lru", bytes))).map((cell) => cell.hits / cell.accesses);
  assert.equal(placed.ys.length, lru.length);
  placed.ys.forEach((y, n) => {
    const value = low + (y - y_low) / (y_high - y_low) * (high - low);
    assert.ok(Math.abs(value - lru[n]) < 0.01, `drawn at ${value}, is ${lru[n]}`);
  });
  await done();
});

test("figures by the size of memory have the numbers of --json", { skip }, async () => {
  const { page: path, lines } = run("nvm", "compare", trace, "--memory", "4MiB,16MiB", "--writeback", "hf", "--device", "ufs-3.1",
    "--system", "storage,flush-nvm:pages=64,flush-nvm:pages=256,hybrid-flush:pages=64,hybrid-flush:pages=256,fslru");
  const { page, done } = await open(path);
  const time = (cell) => (cell.elapsed_s + cell.memory["pcm-2016"].dram_s + cell.memory["pcm-2016"].nvm_read_s + cell.memory["pcm-2016"].nvm_write_s) * 1e6;
  const energy = (reading) => (cell) => cell.memory["pcm-2016"][reading];
  const energies = {
    "3.3 mJ a page written to storage, a read by its time": energy("energy_by_time_j"),
    "3.3 mJ a page of storage": energy("energy_mj_page_j"),
    "storage at 3.3 V": energy("energy_j"),
    "the paper's quotient: energy / latency of each access": energy("energy_quotient_w"),
  };
  const near = (found, wanted, what) => assert.ok(Math.abs(found - wanted) <= 1e-9 * Math.abs(wanted), `${what}: ${found}, not ${wanted}`);
  const caches = [4, 16].map((mib) => [`cache of ${mib} MiB`, mib << 20]);
  const buffers = {
    "nvm-writes": [["", (cell) => cell.device_writes + cell.dirty_left + cell.nvm_left]],
    "nvm-time": [["ufs-3.1", time]],
    "nvm-energy": Object.entries(energies),
  };
  for (const [id, panels] of Object.entries(buffers)) {
    const { rows } = await data(page, id);
    // Two lines of two sizes, and the ends of a level line.
    assert.equal(rows.length, caches.length * panels.length * 6, id);
    for (const [view, panel, name, bytes, value] of rows) {
      const memory_bytes = caches.find(([label]) => label === view)[1];
      const system = name === "lru, without" ? "storage" : `${name.replace("lru ", "")}:pages=${bytes / 4096}`;
      const cell = lines.find((one) => one.memory_bytes === memory_bytes && one.system === system);
      near(value, panels.find(([title]) => title === panel)[1](cell), `${id} ${view} ${name} ${bytes}`);
    }
  }
  const whole = { "cache-time": { "ufs-3.1": time, "": time }, "cache-energy": energies };
  for (const [id, of] of Object.entries(whole)) {
    const { rows } = await data(page, id);
    assert.equal(rows.length, lines.length * (id === "cache-time" ? 1 : 4), id);
    for (const [view, , policy, bytes, value] of rows) {
      near(value, of[view](lines.find((one) => one.memory_bytes === bytes && one.policy === policy)), `${id} ${view} ${policy}`);
    }
  }
  await done();
});

test("figures of read-ahead have the numbers of --json", { skip }, async () => {
  const { page: path, lines } = run("ahead", "compare", trace, "--readahead", "off,linux:16k,linux:128k,paper:8,paper:32",
    "--memory", "4MiB,16MiB", "--device", "ufs-3.1,emmc-5.1");
  const { page, done } = await open(path);
  const share = (part, whole) => (whole > 0 ? part / whole : undefined);
  const any = (of) => ({ "": of });
  const devices = ["ufs-3.1", "emmc-5.1"];
  const cases = { cached: "cached", "into free frames": "free", "evicts clean pages": "evict_clean", "writes dirty pages first": "evict_dirty" };
  const byCase = (field) => Object.fromEntries(devices.flatMap((device) => Object.entries(cases).map(([name, key]) =>
    [`${device}, ${name}`, (cell) => cell.read_cases[key][field]])));
  const figures = {
    efficiency: {
      "Of the pages asked for": (cell) => share(cell.prefetched_used, cell.prefetched_asked),
      "Of the pages read from the device": (cell) => share(cell.prefetched_used, cell.prefetched_read),
    },
    hits: any((cell) => cell.hits / cell.accesses),
    wasted: any((cell) => (cell.readahead === "off" ? undefined : cell.wasted_bytes)),
    requests: {
      "Requests that read": (cell) => cell.device_read_requests,
      "Windows": (cell) => share(cell.window_pages * 4096, cell.windows),
    },
    "at-maximum": any((cell) => share(cell.windows_at_max, cell.windows)),
    latency: byCase("latency_us"),
    wait: byCase("stall_us"),
    time: Object.fromEntries(devices.flatMap((device) => [["elapsed", "elapsed_s"], ["stall", "stall_s"]].map(([name, key]) =>
      [`${device}, ${name}`, (cell) => cell[key] * 1e6]))),
  };
  for (const [id, panels] of Object.entries(figures)) {
    const { rows } = await data(page, `readahead-${id}`);
    const wanted = new Map();
    for (const cell of lines) {
      for (const [panel, of] of Object.entries(panels)) {
        if (panel.includes(", ") && !panel.startsWith(`${cell.device}, `)) continue;
        const [name, size] = cell.readahead.split(":");
        // Without read-ahead the line is level, from the least window to the largest.
        const kib = name === "off" ? [16, 128] : [Number(size.split("=")[1]) * (name === "paper" ? 4 : 1)];
        for (const at of kib) {
          if (of(cell) !== undefined) wanted.set([`cache of ${cell.memory_bytes >> 20} MiB`, panel, name, at * 1024].join(), of(cell));
        }
      }
    }
    assert.deepEqual(rows.map((row) => row.slice(0, 4).join()).sort(), [...wanted.keys()].sort(), id);
    for (const row of rows) {
      const [value, found] = [wanted.get(row.slice(0, 4).join()), row[4]];
      assert.ok(Math.abs(value - found) <= 1e-9 * Math.abs(value), `${id} ${row}: ${value}`);
    }
  }
  // The tables of read-ahead and of the cases stand below the others.
  for (const table of ["read-ahead", "cases-0", "cases-1"]) {
    assert.equal(await page.locator(`#table-0-${table} tbody tr`).count(), 5, table);
  }
  await done();
});

test("figures of sifters have the numbers of --json", { skip }, async () => {
  const { page: path, lines } = run("sifters", "compare", trace, "--sift", "keep,drop-all,touch,oracle", "--memory", "8MiB,32MiB", "--metadata", "ext4", "--device", "ufs-3.1");
  const { page, done } = await open(path);
  const label = (cell) => `${cell.memory_bytes >> 20} MiB`;
  const shares = {
    "whole trace": (cell) => [cell.fetched_again_share, cell.kept_share],
    "second half": (cell) => [cell.later_fetched_again_share, cell.later_kept_share],
  };
  const { rows } = await data(page, "sift-frontier");
  for (const [view, of] of Object.entries(shares)) {
    for (const sifter of ["keep", "drop-all", "touch", "oracle"]) {
      const found = rows.filter((row) => row[0] === view && row[2] === sifter).map((row) => [row[3], row[4]]);
      const wanted = lines.filter((cell) => cell.sifter === sifter).map(of);
      const sorted = (points) => points.map(([x, y]) => `${x.toFixed(9)} ${y.toFixed(9)}`).sort();
      assert.deepEqual(sorted(found), sorted(wanted), `${view} ${sifter}`);
    }
  }
  const parts = {
    "droppable files": (cell) => cell.flash_bytes,
    "other files": (cell) => cell.other_flash_bytes,
    "journal and metadata": (cell) => (cell.journal_writes + cell.metadata_writes) * 4096,
  };
  const flash = await data(page, "sift-flash");
  const over = await data(page, "sift-over-time");
  const elapsed = await data(page, "sift-elapsed");
  assert.equal(flash.rows.length, 3 * lines.length);
  for (const cell of lines) {
    for (const [part, of] of Object.entries(parts)) {
      assert.equal(flash.rows.find((row) => row[0] === label(cell) && row[2] === part && row[4] === cell.sifter)[3], of(cell));
    }
    // The lines over time end at the sums.
    for (const [panel, field] of [["Data of droppable files to flash", "flash_bytes"], ["Fetched again", "fetched_again_bytes"]]) {
      const line = over.rows.filter((row) => row[0] === label(cell) && row[1] === panel && row[2] === cell.sifter).map((row) => row[4]);
      assert.ok(line.every((value, n) => n === 0 || value >= line[n - 1]), `${panel} falls`);
      assert.equal(line.at(-1), cell[field], `${panel} ${cell.sifter}`);
    }
    const time = elapsed.rows.find((row) => row[0] === label(cell) && row[4] === cell.sifter)[3];
    assert.ok(Math.abs(time - cell.elapsed_s * 1e6) <= 1e-9 * time, `${cell.sifter}: ${time}`);
  }
  // A row for each sifter, and one for the upper bound.
  assert.equal(await page.locator("#table-1 tbody tr").count(), lines.length / 2 + 1);
  assert.ok((await page.locator("#table-1").textContent()).includes("upper bound"));
  await done();
});

test("a description shows the sifters of --json", { skip }, async () => {
  const { page: path, lines: [json] } = run("advised", "describe", trace, "--sift");
  const { page, done } = await open(path);
  const { rows } = await data(page, "sift-kept");
  assert.deepEqual(rows.map((row) => row[2]), json.sift.sifters.map((row) => row.name));
  rows.forEach(([, , name, again, kept], n) => {
    const row = json.sift.sifters[n];
    assert.ok(Math.abs(again - row.fetched_again_share) < 1e-6 && Math.abs(kept - row.kept_share) < 1e-6, name);
  });
  assert.ok((await page.locator("#sift").textContent()).includes(json.sift.command));
  await done();
});

test("each mode of write-back has its view", { skip }, async () => {
  const { page: path, lines } = run("modes", "compare", trace, "--policy", "lru,arc", "--memory", "4MiB,16MiB",
    "--writeback", "linux", "--writeback", "evict");
  const { page, done } = await open(path);
  const { rows } = await data(page, "writes");
  assert.equal(rows.length, 8);
  for (const [mode, , policy, bytes, value] of rows) {
    const cell = lines.find((one) => one.writeback.includes("expire") === (mode === "linux") && one.policy === policy && one.memory_bytes === bytes);
    assert.equal(value, cell.device_writes + cell.dirty_left, `${mode} ${policy} ${bytes}`);
  }
  await done();
});

test("times on devices equal those of --json", { skip }, async () => {
  const { page: path, lines } = run("devices", "compare", trace, "--policy", "lru,fab,belady", "--memory", "4MiB,16MiB",
    "--device", "microsd-2012,ufs-3.1");
  const { page, done } = await open(path);
  assert.equal(lines.filter((cell) => cell.policy).length, 12);
  const figures = { elapsed: (cell) => cell.elapsed_s * 1e6, stall: (cell) => cell.stall_s * 1e6, "write-amplification": (cell) => cell.write_amplification };
  for (const [id, of] of Object.entries(figures)) {
    const { rows } = await data(page, id);
    assert.equal(rows.length, 12, id);
    for (const [device, , policy, bytes, value] of rows) {
      const cell = lines.find((one) => one.device === device && one.policy === policy && one.memory_bytes === bytes);
      assert.ok(Math.abs(value - of(cell)) <= 1e-6 * Math.abs(value) + 1, `${id} ${device} ${policy}: ${value}, ${of(cell)}`);
    }
  }
  await done();
});

test("a description draws the values of --json, beside those of the papers", { skip }, async () => {
  const { page: path, lines: [json] } = run("described", "describe", trace);
  const { page, done } = await open(path);
  const sum = (rows, at) => rows.reduce((sum, row) => sum + row[at], 0);
  const all = (rows, key) => rows.reduce((sum, row) => sum + row[key], 0);

  const time = await data(page, "pages-over-time");
  for (const kind of ["reads", "writes"]) {
    const rows = time.rows.filter(([, , series]) => series === kind);
    assert.deepEqual(rows.map(([, , , x, y, amount]) => [x, y, amount]),
      json.over_time.grid.filter((cell) => cell[kind] > 0).map((cell) => [cell.first_access, cell.first_page, cell[kind]]));
    assert.equal(sum(rows, 5), json.mix.operations.find((row) => row.operation === kind).page_accesses);
  }
  const mix = await data(page, "reads-and-writes");
  for (const [, , part, share, of] of mix.rows) {
    const key = { "page accesses": "page_accesses_share", requests: "requests_share", bytes: "moved_bytes_share" }[of];
    assert.ok(Math.abs(share - json.mix.operations.find((row) => row.operation === part)[key]) < 1e-6);
  }
  const files = await data(page, "files-by-time");
  for (const [series, key] of [["read", "read_bytes"], ["written", "written_bytes"]]) {
    assert.equal(sum(files.rows.filter((row) => row[2] === series), 5), all(json.files_over_time.files, key));
  }
  const periods = await data(page, "active-periods");
  assert.equal(sum(periods.rows, 3), all(json.lifetimes.active_periods, "files"));
  const skew = await data(page, "skew-curve");
  assert.deepEqual(skew.rows.length, json.skew.curve.length);
  const again = await data(page, "again");
  const [, , , , last] = again.rows.filter(([view, , series]) => view === "up to each rank" && series === "used last").at(-1);
  assert.ok(Math.abs(last - 1) < 1e-9);
  const windows = await data(page, "written-in-60-s");
  assert.equal(Math.max(...windows.rows.filter(([, , series]) => series === "all files").map((row) => row[4])),
    json.windows.in_60_s.find((row) => row.to === "all").most_bytes);

  // The lines of bytes that reach flash end at each program's sum.
  const reached = await data(page, "flash-by-program");
  for (const { program, reached_bytes: bytes } of json.reached_flash.programs.slice(0, 6)) {
    assert.equal(reached.rows.findLast((row) => row[2] === program)[4], bytes, program);
  }

  // Every section has a sentence on this trace; figures known from papers show the paper's finding.
  const newFigures = ["reached-flash"];
  const sections = await page.locator("main > section:not(#in-short, #reproduce)").evaluateAll((all) =>
    all.map((e) => [e.id, e.querySelectorAll("figure").length, e.querySelectorAll(".caption, h2 + p").length, e.querySelectorAll(".paper").length]));
  assert.equal(sections.length, Object.values(json).filter((value) => typeof value === "object").length - 1);
  for (const [id, figures, captions, papers] of sections) {
    assert.ok(captions > 0, `${id} has no caption`);
    assert.equal(papers, figures > 0 && !newFigures.includes(id) ? 1 : 0, id);
  }
  await done();
});

test("pointer and keys show values", { skip }, async () => {
  const { page: path, lines } = run("tips", "compare", trace, "--policy", "lru,arc,belady", "--memory", "4MiB,16MiB,64MiB");
  const { page, done } = await open(path);
  const tip = page.locator("#tip");
  assert.equal(await tip.isVisible(), false);
  const cell = lines.find((one) => one.policy === "arc" && one.memory_bytes === 16 << 20);
  const label = `arc\n${(cell.hits / cell.accesses * 100).toFixed(2)} % at 16 MiB`;
  const mark = page.locator('#hit-ratio svg.wide [data-n="arc"] circle').nth(1);
  await mark.scrollIntoViewIfNeeded();
  const box = await mark.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  assert.equal(await tip.textContent(), label);
  await page.mouse.move(2, 2);
  assert.equal(await tip.isVisible(), false);

  await page.locator("#hit-ratio svg.wide").focus();
  const labels = new Set();
  for (let n = 0; n < 3; n++) {
    for (const press of ["ArrowRight", "ArrowRight", "ArrowRight"]) { await page.keyboard.press(press); labels.add(await tip.textContent()); }
    await page.keyboard.press("ArrowUp");
    for (const press of ["ArrowLeft", "ArrowLeft", "ArrowLeft"]) { labels.add(await tip.textContent()); await page.keyboard.press(press); }
    labels.add(await tip.textContent());
    await page.keyboard.press("ArrowUp");
  }
  assert.equal(labels.size, 9, [...labels].join("; "));
  assert.ok(labels.has(label));
  await page.keyboard.press("Escape");
  assert.equal(await tip.isVisible(), false);
  // Every control can be reached by keys.
  const reachable = await page.locator("button, summary, a[href], input, figure svg[tabindex]").evaluateAll((all) => all.every((e) => e.tabIndex >= 0));
  assert.ok(reachable);
  await done();
});

test("tables sort, views are chosen, series are highlighted", { skip }, async () => {
  const { page: path } = run("use", "compare", trace, ...some);
  const { page, done } = await open(path);
  const table = page.locator("details.table[open] table").first();
  const column = (n) => table.locator("tbody tr").evaluateAll((rows, n) => rows.map((row) => Number(row.cells[n].dataset.v)), n);
  const head = table.locator("thead th").nth(2);
  const sorted = (values, sign) => values.every((value, n) => n === 0 || sign * (value - values[n - 1]) >= 0);
  const before = await column(2);
  assert.ok(!sorted(before, 1) && !sorted(before, -1));
  await head.locator("button").click();
  assert.ok(sorted(await column(2), -1) && await head.getAttribute("aria-sort") === "descending");
  await head.locator("button").click();
  assert.ok(sorted(await column(2), 1) && await head.getAttribute("aria-sort") === "ascending");
  await table.locator("thead th").first().locator("button").click();
  assert.equal(await head.getAttribute("aria-sort"), null);
  assert.deepEqual((await column(2)).sort(), [...before].sort());

  const choice = page.locator("#hits-and-writes .choice label");
  for (let n = 0; n < await choice.count(); n++) {
    await choice.nth(n).click();
    const seen = await page.locator("#hits-and-writes .view").evaluateAll((views) => views.map((v) => v.getClientRects().length > 0));
    assert.deepEqual(seen, seen.map((_, at) => at === n));
  }

  const button = page.locator('#writes .legend button[data-n="fifo"]');
  await button.click();
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  const width = (name) => page.locator(`#writes svg.wide .series[data-n="${name}"] .line`).evaluate((e) => parseFloat(getComputedStyle(e).strokeWidth));
  await page.mouse.move(2, 2);
  await button.blur();
  assert.ok(await width("fifo") > await width("clock"));
  await button.click();
  await page.mouse.move(2, 2);
  await button.blur();
  assert.equal(await width("fifo"), await width("clock"));
  await done();
});

test("a figure can be saved as SVG and CSV", { skip }, async () => {
  const { page: path } = run("taken", "compare", trace, ...some);
  const { page, done } = await open(path);
  for (const figure of ["hit-ratio", "fate-of-writes", "places"]) {
    const get = async (kind) => {
      const [download] = await Promise.all([page.waitForEvent("download"), page.locator(`#${figure} [data-get=${kind}]`).click()]);
      const to = join(folder, download.suggestedFilename());
      await download.saveAs(to);
      return readFileSync(to, "utf8");
    };
    const { columns, rows } = await data(page, figure);
    const lines = (await get("csv")).trimEnd().split("\n");
    assert.equal(lines.length, rows.length + 1);
    assert.equal(lines[0], columns.join(","));
    const svg = await get("svg");
    const alone = await browser.newPage();
    alone.setDefaultTimeout(PATIENCE_MS);
    await alone.setContent(svg);
    const drawn = await alone.locator("svg path, svg rect").evaluateAll((all) => ({
      count: all.length, colors: new Set(all.map((e) => getComputedStyle(e).stroke + getComputedStyle(e).fill)).size,
    }));
    assert.ok(drawn.count > 3 && drawn.colors > 2, `${figure}: ${JSON.stringify(drawn)}`);
    assert.ok(!svg.includes("var(--"), "it needs no style sheet");
    // Its title above it, its legend below, and a margin around: all was once left behind.
    const texts = await alone.locator("svg text").evaluateAll((all) => all.map((e) => e.textContent));
    const title = await page.locator(`#${figure} h3`).textContent();
    assert.ok(texts[0].startsWith(title.split(" ").slice(0, 2).join(" ")), `${figure}: ${texts[0]}`);
    const names = await page.locator(`#${figure} .legend button`).evaluateAll((all) => all.map((e) => e.dataset.n));
    for (const name of names) assert.ok(texts.includes(name), `${figure}: ${name} is not in its legend`);
    const outside = await alone.evaluate(() => {
      const whole = document.querySelector("svg").getBoundingClientRect();
      return [...document.querySelectorAll("svg text")].map((e) => [e.textContent, e.getBoundingClientRect()])
        .filter(([t, b]) => t.trim() && (b.left < whole.left || b.right > whole.right || b.bottom > whole.bottom || b.top < whole.top))
        .map(([t]) => t);
    });
    assert.deepEqual(outside, [], `${figure}: outside`);
    await alone.close();
  }
  await done();
});

// The picture of the README is the first figure of the page that the command below it writes.
// Fonts differ between machines, so its paths and texts are compared. PICTURE=write renews it.
test("the picture of the README is that of its command", { skip }, async () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, picture, command] = readme.match(/!\[[^\]]*\]\((\S+\.svg)\)\s[^`]*`flashsift ([^`]*) --report page\.html`/);
  const path = join(folder, "page.html");
  execFileSync(flashsift, [...command.split(" "), "--report", path], { cwd: root, stdio: "ignore" });
  const { page, done } = await open(path);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("figure [data-get=svg]").first().click()]);
  const made = join(folder, download.suggestedFilename());
  await download.saveAs(made);
  await done();
  if (process.env.PICTURE === "write") copyFileSync(made, join(root, picture));
  const drawn = (path) => {
    const [svg] = readFileSync(path, "utf8").match(/<svg class="wide".*?<\/svg>/s);
    return [...svg.matchAll(/ d="([^"]*)"|>([^<]+)</g)].map(([, line, text]) => line ?? text);
  };
  assert.ok(drawn(made).length > 50);
  assert.deepEqual(drawn(join(root, picture)), drawn(made), "PICTURE=write make pages");
});

// Folded tables, columns beyond the edge and all but one size were once missing on paper.
test("paper has every view, table and column", { skip }, async () => {
  const { page: path } = run("paper", "compare", trace, "--system", "all", "--policy", "lru,arc", "--memory", "4MiB,16MiB", "--device", "ufs-3.1");
  for (const javaScriptEnabled of [true, false]) {
    // A sheet of A4 without its margins.
    const { page, done } = await open(path, { viewport: { width: 688, height: 1000 }, javaScriptEnabled });
    await page.emulateMedia({ media: "print" });
    const hidden = await page.locator("figure .view, table th, table td").evaluateAll((all) =>
      all.filter((e) => !e.checkVisibility({ contentVisibilityAuto: true }) || !e.getClientRects().length).length);
    assert.equal(hidden, 0, `script: ${javaScriptEnabled}`);
    const sizes = await page.locator("#hits-and-writes .view").evaluateAll((all) =>
      all.map((view) => getComputedStyle(view, "::before").content));
    assert.deepEqual(sizes, ['"4 MiB"', '"16 MiB"']);
    const cut = await page.locator("details.table:not(.broad) table").evaluateAll((all) =>
      all.filter((table) => table.getBoundingClientRect().right > innerWidth + 1).map((table) => table.closest("details").id));
    assert.deepEqual(cut, [], "tables wider than the sheet");
    await done();
  }
});

test("a wide table uses the width of the window", { skip }, async () => {
  const { page: path } = run("broad", "compare", trace, "--policy", "lru,arc", "--memory", "4MiB");
  for (const [viewport, scrolls] of [[DESK, false], [PHONE, true]]) {
    const { page, done } = await open(path, { viewport });
    const box = await page.locator("#table-0 .scroll").evaluate((e) => [e.scrollWidth, e.clientWidth, e.getBoundingClientRect().left]);
    assert.equal(box[0] > box[1], scrolls, `${viewport.width}: ${box}`);
    assert.ok(box[2] >= 0 && await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await done();
  }
});

test("axe finds nothing", { skip }, async () => {
  const pages = [
    ["compare", trace, "--memory", "4MiB,16MiB", "--device", "ufs-3.1"],
    ["describe", trace],
    ["compare", trace, "--sift", "keep,touch", "--memory", "8MiB,16MiB"],
  ];
  for (const args of pages) {
    const { page: path } = run("axe", ...args);
    for (const options of [{ viewport: DESK }, { viewport: PHONE }, { viewport: DESK, colorScheme: "dark" }]) {
      const { page, done } = await open(path, { ...options, bypassCSP: true });
      await page.evaluate(() => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
      await page.addScriptTag({ content: readFileSync(axe, "utf8") });
      const violations = await page.evaluate(async () => (await window.axe.run(document)).violations.map(({ id, nodes }) => [id, nodes[0].html]));
      assert.deepEqual(violations, [], `${args.join(" ")} ${JSON.stringify(options)}`);
      await done();
    }
  }
});

test("a diff is drawn with the values of --json", { skip }, async () => {
  const [before, after] = [["--policy", "lru,arc,fab"], ["--policy", "lru,arc,fab", "--write-miss", "read"]].map((args, n) => {
    const file = join(folder, `${n}.json`);
    writeFileSync(file, execFileSync(flashsift, ["compare", trace, "--json", ...args], { stdio: ["ignore", "pipe", "ignore"] }));
    return file;
  });
  const { page: path, lines } = run("diff", "diff", before, after);
  assert.ok(lines.length > 10 && lines.every((change) => change.before !== change.after && change.field !== "cpu_ns_per_access"));
  for (const viewport of [DESK, PHONE]) {
    const { page, done } = await open(path, { viewport });
    await everyView(page);
    const judged = await page.locator("#policies dd").allTextContents();
    assert.equal(judged.length, 3);
    assert.ok(judged.some((words) => /better|worse/.test(words)), judged.join("; "));
    assert.equal(await page.locator("#table tbody tr").count(), lines.length);
    for (const field of new Set(lines.map((change) => change.field))) {
      const { rows } = await data(page, `field-${field.replaceAll("_", "-")}`);
      assert.deepEqual(rows.map(([, , of, a, b]) => [of, a, b]),
        lines.filter((change) => change.field === field).map((change) => [change.of, change.before, change.after]));
    }
    await done();
  }
});

test("a file name cannot inject markup", { skip }, async () => {
  const name = `<img src=x onerror=alert(1)><script>alert(2)<script>"'&.parquet`.replaceAll("/", "");
  const hostile = join(folder, name);
  copyFileSync(trace, hostile);
  const { page: path } = run("hostile", "compare", hostile, "--policy", "lru,arc", "--memory", "4MiB,16MiB");
  const { page, done } = await open(path);
  assert.ok((await page.locator("h1").textContent()).startsWith(name));
  assert.equal(await page.locator("img").count(), 0);
  await done();
});

// Thirty policies at eight sizes on five devices take minutes.
test("a page with all figures is small", { skip: skip || (!process.env.PAGES_LONG && "a long form, which make soak runs") }, async () => {
  const sizes = [1, 2, 4, 8, 16, 32, 64, 128].map((size) => `${size}MiB`).join(",");
  const many = ["all", ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 25].map((n) => `cflru:window=0.${n}`)].join(",");
  const devices = "microsd-2012,emmc1-2012,emmc-5.1,ufs-3.1,ufs-4.0";
  const { page, lines } = run("large", "compare", trace, "--policy", many, "--memory", sizes, "--device", devices);
  assert.ok(lines.length >= 30 * 8 * 5, `${lines.length} cells`);
  const bytes = readFileSync(page).length;
  assert.ok(bytes < 3e6, `${bytes} bytes`);
});
