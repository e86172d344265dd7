// Reads a trace by the trace engine of Chrome's developer tools (npm: @paulirish/trace_engine), and prints what it has found as JSON:
// for each thread its name and its spans.
//
//     node engine.mjs FOLDER-OF-THE-PACKAGE TRACE.json
import fs from "node:fs";

const [, , engine, file] = process.argv;
const { TraceModel } = await import(`${engine}/models/trace/trace.js`);
const model = TraceModel.Model.createWithAllHandlers();
await model.parse(JSON.parse(fs.readFileSync(file, "utf8")));
const { data } = model.parsedTrace(0);
const threads = {};
for (const [, { threads: found }] of data.Renderer.processes) {
    for (const [tid, { name, entries }] of found) {
        threads[tid] = { name, spans: entries.filter((one) => one.ph === "X").map((one) => [one.name, one.ts, one.dur]) };
    }
}
console.log(JSON.stringify(threads));
