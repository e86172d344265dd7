//! The server: OpenAI's completions by axum.

use crate::engine::{CONTEXT, Made, Request};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The model's name, in requests and answers: the same as that of gpunet-tokens, so that a client
/// can ask both.
const MODEL: &str = "gpunet-tokens";

/// What handlers share.
struct Shared {
    requests: UnboundedSender<Request>,
    number: AtomicU64,
}

/// The routes, which send requests to the engine.
pub fn routes(requests: UnboundedSender<Request>) -> Router {
    let shared = Arc::new(Shared { requests, number: AtomicU64::new(1) });
    Router::new()
        .route("/healthz", get(|| async { Json(serde_json::json!({"status": "ok"})) }))
        .route("/v1/models", get(models))
        .route("/v1/completions", post(complete))
        .with_state(shared)
}

async fn models() -> Json<serde_json::Value> {
    Json(
        serde_json::json!({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "gpunet"}]}),
    )
}

/// What a client asks for; the fields of gpunet-tokens that a measurement needs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    model: String,
    prompt: String,
    #[serde(default = "sixteen")]
    max_tokens: usize,
    #[serde(default = "one")]
    temperature: f32,
    seed: Option<u64>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    ignore_eos: bool,
}

fn sixteen() -> usize {
    16
}

fn one() -> f32 {
    1.0
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'static str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

/// An error in OpenAI's form.
fn refuse(status: StatusCode, message: &str) -> Response {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    let error = serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
    (status, Json(error)).into_response()
}

async fn complete(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    if asked.model != MODEL {
        return refuse(StatusCode::NOT_FOUND, "there is no such model; the model is gpunet-tokens");
    }
    let prompt = asked.prompt.into_bytes();
    if asked.max_tokens == 0 || 1 + prompt.len() + asked.max_tokens > CONTEXT {
        return refuse(
            StatusCode::BAD_REQUEST,
            "prompt and max_tokens exceed the context of 512 tokens, or max_tokens is 0",
        );
    }
    let number = shared.number.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (prompt_tokens, created) = (1 + prompt.len(), since.as_secs());
    let (sender, tokens) = unbounded_channel();
    let request = Request {
        prompt,
        max_tokens: asked.max_tokens,
        temperature: asked.temperature,
        seed: asked.seed.unwrap_or_else(|| since.as_nanos() as u64 ^ number.rotate_left(40)),
        ignores_end: asked.ignore_eos,
        tokens: sender,
    };
    if shared.requests.send(request).is_err() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the model's thread has ended");
    }
    let texts =
        Texts { id: format!("cmpl-{number}"), created, tokens, held: Vec::new(), made: 0, finish: None };
    if asked.stream { texts.stream().into_response() } else { texts.whole(prompt_tokens).await }
}

/// The answer of a request as it grows.
struct Texts {
    id: String,
    created: u64,
    tokens: UnboundedReceiver<Made>,
    /// Bytes of a character that is not whole.
    held: Vec<u8>,
    made: usize,
    finish: Option<&'static str>,
}

impl Texts {
    /// Waits for tokens, and takes all that are there. Returns false when the engine has ended.
    async fn take(&mut self) -> bool {
        let Some(mut made) = self.tokens.recv().await else { return false };
        loop {
            match made {
                Made::Token(token) => {
                    self.held.push(token);
                    self.made += 1;
                }
                Made::End { is_length } => {
                    self.finish = Some(if is_length { "length" } else { "stop" });
                    return true;
                }
            }
            let Ok(next) = self.tokens.try_recv() else { return true };
            made = next;
        }
    }

    /// The text that is whole; all of it after the end.
    fn text(&mut self) -> String {
        let open = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() && self.finish.is_none() => {
                self.held.len() - error.valid_up_to()
            }
            _ => 0,
        };
        let rest = self.held.split_off(self.held.len() - open);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    fn answer<'a>(
        &'a self,
        text: &'a str,
        finish_reason: Option<&'static str>,
        usage: Option<Usage>,
    ) -> Answer<'a> {
        let choices = [Choice { index: 0, text, logprobs: None, finish_reason }];
        Answer {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: MODEL,
            choices,
            usage,
        }
    }

    fn stream(self) -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
        let events = stream::unfold(Some(self), |state| async move {
            let mut texts = state?;
            loop {
                if texts.finish.is_some() {
                    let last = event(&texts.answer("", texts.finish, None));
                    return Some((vec![last, Event::default().data("[DONE]")], None));
                }
                if !texts.take().await {
                    let error = serde_json::json!({"error": {"message": "the model has failed", "type": "server_error"}});
                    return Some((vec![event(&error)], None));
                }
                let text = texts.text();
                if !text.is_empty() {
                    let event = event(&texts.answer(&text, None, None));
                    return Some((vec![event], Some(texts)));
                }
            }
        });
        Sse::new(events.flat_map(|events| stream::iter(events.into_iter().map(Ok))))
    }

    async fn whole(mut self, prompt_tokens: usize) -> Response {
        while self.finish.is_none() {
            if !self.take().await {
                return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the model has failed");
            }
        }
        let text = self.text();
        let total_tokens = prompt_tokens + self.made;
        let usage = Usage { prompt_tokens, completion_tokens: self.made, total_tokens };
        Json(self.answer(&text, self.finish, Some(usage))).into_response()
    }
}

fn event(data: &impl Serialize) -> Event {
    // Strings and numbers are always JSON.
    Event::default().json_data(data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use hyper::Request as HttpRequest;
    use tower::ServiceExt;

    /// What the routes answer, with an engine that makes these tokens for every request.
    async fn answer(body: &str, tokens: &'static [u8]) -> (StatusCode, String) {
        let (sender, mut requests) = unbounded_channel::<Request>();
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                for token in tokens {
                    let _ = request.tokens.send(Made::Token(*token));
                    tokio::task::yield_now().await;
                }
                let _ = request.tokens.send(Made::End { is_length: request.max_tokens == tokens.len() });
            }
        });
        let request =
            HttpRequest::post("/v1/completions").body(Body::from(body.to_owned())).expect("a request");
        let answer = routes(sender).oneshot(request).await.expect("an answer");
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn streams_have_the_text_and_end() {
        let body = r#"{"model": "gpunet-tokens", "prompt": "a", "max_tokens": 6, "stream": true}"#;
        let (status, text) = answer(body, "ab\u{20ac}c".as_bytes()).await;
        assert_eq!(status, StatusCode::OK);
        let events: Vec<_> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(events.last(), Some(&"[DONE]"), "{text}");
        let parsed: Vec<serde_json::Value> = events[..events.len() - 1]
            .iter()
            .map(|event| serde_json::from_str(event).expect("JSON"))
            .collect();
        let made: String = parsed.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert_eq!(made, "ab\u{20ac}c");
        assert_eq!(parsed.last().expect("an event")["choices"][0]["finish_reason"], "length");
    }

    #[tokio::test]
    async fn whole_answers_have_their_usage() {
        let (status, text) = answer(r#"{"model": "gpunet-tokens", "prompt": "ab"}"#, b"xyz").await;
        let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &answer["choices"][0]["text"]), (StatusCode::OK, &"xyz".into()));
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert_eq!(answer["usage"]["total_tokens"], 6);
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused() {
        for (body, status) in [
            ("{", StatusCode::BAD_REQUEST),
            (r#"{"model": "gpunet-tokens", "prompt": "a", "n": 2}"#, StatusCode::BAD_REQUEST),
            (r#"{"model": "gpunet-tokens", "prompt": "a", "max_tokens": 511}"#, StatusCode::BAD_REQUEST),
            (r#"{"model": "another", "prompt": "a"}"#, StatusCode::NOT_FOUND),
        ] {
            assert_eq!(answer(body, b"").await.0, status, "{body}");
        }
    }
}
