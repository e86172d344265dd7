//! Clients that we did not write: curl, Python's own, node's fetch, and, where they are installed,
//! httpx and the package openai, and an EventSource.

use crate::client::{completion, send, until_metric};
use crate::process::{command, finish};
use crate::server;
use serde_json::Value;
use std::process::Command;

/// The greedy text of this prompt, of 8 tokens, which each client has to print.
const PROMPT: &str = "User: What is a socket?";

fn body(fields: &str) -> String {
    format!(r#"{{"model":"gpunet-tokens","prompt":"{PROMPT}","max_tokens":8,"temperature":0{fields}}}"#)
}

/// Returns whether a program or a module of it is there; what does not run is said.
fn has(client: &str, mut probe: Command) -> bool {
    let is_there = probe.output().is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("NOT RUN: {client} is not on this machine");
    }
    is_there
}

/// The Python that has these packages: that of the environment, or the usual one.
fn python() -> String {
    std::env::var("GPUNET_OPENAI_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

fn has_module(name: &str) -> bool {
    has(&format!("Python's {name}"), command(&python(), &["-c", &format!("import {name}")]))
}

/// Runs a client, whose text is on its last line as JSON.
fn run(program: &str, args: &[&str]) -> Value {
    let output = finish(command(program, args).spawn().expect("the client starts"));
    assert!(output.status.success(), "{}\n{}", output.out, output.err);
    let line = output.out.lines().last().unwrap_or_else(|| panic!("{}", output.err));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", output.out))
}

#[test]
fn curl_gets_a_text_and_a_stream() {
    let server = server(&[]);
    let expected = send(server.addr, &completion(PROMPT, 8, "")).text();
    let url = format!("http://{}/v1/completions", server.addr);
    let head = ["-sS", "-m", "100", "-H", "Content-Type: application/json", "-d"];
    let whole = run("curl", &[&head[..], &[&body(""), &url]].concat());
    assert_eq!(whole["choices"][0]["text"], expected.as_str());
    let with_stream = body(r#","stream":true"#);
    let stream = command("curl", &[&head[..], &[&with_stream, "-N", &url]].concat());
    let stream = finish({ stream }.spawn().expect("curl starts"));
    let events = stream.out.lines().filter_map(|line| line.strip_prefix("data: "));
    let texts = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let text: String =
        texts.filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(text, expected, "{}", stream.out);
    assert!(stream.out.ends_with("data: [DONE]\n\n"), "{}", stream.out);
}

const URLLIB: &str = r#"
import http.client, json, sys, urllib.request
addr, body = sys.argv[1], json.loads(sys.argv[2])
data = json.dumps(body).encode()
request = urllib.request.Request(f"http://{addr}/v1/completions", data, {"Content-Type": "application/json"})
whole = json.load(urllib.request.urlopen(request, timeout=100))["choices"][0]["text"]
connection = http.client.HTTPConnection(addr, timeout=100)
for _ in range(2):
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    events = connection.getresponse().read().decode().split("\n\n")
    texts = [json.loads(event[6:])["choices"][0]["text"] for event in events if event.startswith("data: {")]
    assert "".join(texts) == whole, (texts, whole)
print(json.dumps(whole))
"#;

#[test]
fn python_gets_a_text_and_streams_on_one_connection() {
    let server = server(&[]);
    let expected = send(server.addr, &completion(PROMPT, 8, "")).text();
    let addr = server.addr.to_string();
    assert_eq!(run("python3", &["-c", URLLIB, &addr, &body("")]), expected.as_str());
}

const OPENAI: &str = r#"
import json, openai, sys
client = openai.OpenAI(base_url=f"http://{sys.argv[1]}/v1", api_key="none")
asked = dict(model="gpunet-tokens", prompt=sys.argv[2], max_tokens=8, temperature=0)
whole = client.completions.create(**asked).choices[0].text
stream = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
assert "".join(part.choices[0].text for part in stream if part.choices) == whole
messages = [{"role": "user", "content": "What is a ring?"}]
chat = dict(model="gpunet-tokens", messages=messages, max_tokens=8, temperature=0)
said = client.chat.completions.create(**chat).choices[0].message.content
stream = client.chat.completions.create(**chat, stream=True)
assert "".join(part.choices[0].delta.content or "" for part in stream) == said
assert client.models.list().data[0].id == "gpunet-tokens"
try:
    client.completions.create(**{**asked, "max_tokens": 4000})
    raise SystemExit("a request that is too long was taken")
except openai.BadRequestError as error:
    assert error.code == "context_length_exceeded", error
try:
    client.completions.create(**{**asked, "model": "other"})
    raise SystemExit("a model that does not exist was taken")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error
print(json.dumps(whole))
"#;

const HTTPX: &str = r#"
import asyncio, httpx, json, sys
url, body = f"http://{sys.argv[1]}/v1/completions", json.loads(sys.argv[2])
async def main():
    async with httpx.AsyncClient(timeout=100) as client:
        whole = (await client.post(url, json=body)).json()["choices"][0]["text"]
        async with client.stream("POST", url, json={**body, "stream": True}) as answer:
            lines = [line[6:] async for line in answer.aiter_lines() if line.startswith("data: {")]
        assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == whole
        print(json.dumps(whole))
asyncio.run(main())
"#;

#[test]
fn the_clients_of_openai_and_httpx_get_what_they_expect() {
    let server = server(&[]);
    let expected = send(server.addr, &completion(PROMPT, 8, "")).text();
    let addr = server.addr.to_string();
    if has_module("openai") {
        assert_eq!(run(&python(), &["-c", OPENAI, &addr, PROMPT]), expected.as_str());
    }
    if has_module("httpx") {
        assert_eq!(run(&python(), &["-c", HTTPX, &addr, &body("")]), expected.as_str());
    }
}

/// Many at once: streams and none, stop sequences, lengths, clients that leave in the middle. Each
/// text is a beginning of the one that the server gives alone.
const MIXED: &str = r#"
import asyncio, json, openai, random, sys
client = openai.AsyncOpenAI(base_url=f"http://{sys.argv[1]}/v1", api_key="none", timeout=100, max_retries=0)
asked = dict(model="gpunet-tokens", prompt=sys.argv[2], temperature=0)
draw = random.Random(41)
async def ask(whole, most, stop, is_stream, leaves):
    expected = whole[:most]
    if stop and stop in expected:
        expected = expected[:expected.index(stop)]
    fields = dict(asked, max_tokens=most, **({"stop": [stop]} if stop else {}))
    if not is_stream:
        assert (await client.completions.create(**fields)).choices[0].text == expected, (most, stop)
        return
    text = ""
    async with await client.completions.create(**fields, stream=True) as stream:
        async for part in stream:
            text += part.choices[0].text
            if leaves and text:
                break
    assert expected.startswith(text) if leaves else text == expected, (most, stop, leaves, text, expected)
async def main():
    whole = (await client.completions.create(**asked, max_tokens=16)).choices[0].text
    def one():
        at = draw.randrange(max(1, len(whole) - 2))
        stop = whole[at:at + 2] if draw.random() < 0.5 else None
        return ask(whole, draw.randint(1, 16), stop, draw.random() < 0.6, draw.random() < 0.3)
    for _ in range(3):
        await asyncio.gather(*(one() for _ in range(24)))
    print(json.dumps(whole))
asyncio.run(main())
"#;

#[test]
fn many_clients_of_openai_at_once_get_their_texts() {
    if !has_module("openai") {
        return;
    }
    let server = server(&["--batch", "5"]);
    let expected = send(server.addr, &completion(PROMPT, 16, "")).text();
    assert_eq!(run(&python(), &["-c", MIXED, &server.addr.to_string(), PROMPT]), expected.as_str());
    until_metric(server.addr, "gpunet_tokens_requests_running", |running| running == 0);
}

const FETCH: &str = r#"
const [url, body] = [`http://${process.argv[1]}/v1/completions`, process.argv[2]];
const ask = (body) => fetch(url, {method: "POST", headers: {"Content-Type": "application/json"}, body});
const whole = (await (await ask(body)).json()).choices[0].text;
let text = "";
const stream = await ask(JSON.stringify({...JSON.parse(body), stream: true}));
for await (const piece of stream.body.pipeThrough(new TextDecoderStream())) text += piece;
const events = text.split("\n\n").filter((event) => event.startsWith("data: {"));
const streamed = events.map((event) => JSON.parse(event.slice(6)).choices[0].text).join("");
if (streamed !== whole) throw new Error(`${streamed} is not ${whole}`);
console.log(JSON.stringify(whole));
"#;

#[test]
fn fetch_of_node_gets_a_text_and_a_stream() {
    let probe = command("node", &["-e", "if (!globalThis.fetch) process.exit(1)"]);
    if !has("node with fetch", probe) {
        return;
    }
    let server = server(&[]);
    let expected = send(server.addr, &completion(PROMPT, 8, "")).text();
    let addr = server.addr.to_string();
    let args = ["--input-type=module", "-e", FETCH, &addr, &body("")];
    assert_eq!(run("node", &args), expected.as_str());
}

/// By the package of npm, which lets its caller fetch: node's own has GET alone. The events come
/// from many streams at once, and half of the clients close theirs in the middle.
const EVENT_SOURCE: &str = r#"
const { EventSource } = require("eventsource");
const [url, body] = [`http://${process.argv[1]}/v1/completions`, process.argv[2]];
const post = (body) => (input, init) => fetch(input,
    {...init, method: "POST", headers: {...init.headers, "Content-Type": "application/json"}, body});
const whole = async () => (await (await post(body)(url, {})).json()).choices[0].text;
const streamed = (leaves) => new Promise((resolve, reject) => {
    let text = "";
    const source = new EventSource(url, {fetch: post(JSON.stringify({...JSON.parse(body), stream: true}))});
    const end = () => (source.close(), resolve(text));
    source.onerror = (error) => (source.close(), reject(new Error(error.message)));
    source.onmessage = ({data}) => {
        if (data === "[DONE]") return end();
        text += JSON.parse(data).choices[0].text;
        if (leaves) end();
    };
});
(async () => {
    const expected = await whole();
    const texts = await Promise.all(Array.from({length: 40}, (_, at) => streamed(at % 2 === 1)));
    texts.forEach((text, at) => {
        if (at % 2 === 1 ? !expected.startsWith(text) : text !== expected) throw new Error(`${text} is not ${expected}`);
    });
    if (await whole() !== expected) throw new Error("the text is another one afterwards");
    console.log(JSON.stringify(expected));
    process.exit(0);
})();
"#;

#[test]
fn an_event_source_gets_what_the_stream_has() {
    if !has("node's package eventsource", command("node", &["-e", "require('eventsource')"])) {
        return;
    }
    let server = server(&[]);
    let expected = send(server.addr, &completion(PROMPT, 8, "")).text();
    let addr = server.addr.to_string();
    assert_eq!(run("node", &["-e", EVENT_SOURCE, &addr, &body("")]), expected.as_str());
    until_metric(server.addr, "gpunet_tokens_requests_running", |running| running == 0);
}
