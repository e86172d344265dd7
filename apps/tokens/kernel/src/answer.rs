//! Answers in the form of OpenAI's API: whole, and as the events of a stream.

use crate::refusal::Refusal;
use crate::request::{MODEL, prompt_tokens};
use gpunet_device::Group;
use gpunet_http::{Body, json};
use gpunet_serve::Bytes;

/// What all parts of an answer say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    /// Names the request: its place and its number there.
    pub(crate) place: u32,
    pub(crate) number: u32,
    /// When it was made, in seconds since 1970: until 2106.
    pub(crate) created: u32,
    /// Bytes of the prompt.
    pub(crate) prompt: u16,
    pub(crate) is_chat: bool,
    /// The stream tells at its end how many tokens there were.
    pub(crate) has_usage: bool,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

impl Finish {
    const fn json(finish: Option<Self>) -> &'static [u8] {
        match finish {
            None => b"null",
            Some(Self::Stop) => b"\"stop\"",
            Some(Self::Length) => b"\"length\"",
        }
    }
}

/// What an event tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'t> {
    /// The answer of a chat begins.
    Role,
    /// A piece of the text, and when its last token was stored if that is to be told.
    Text(Bytes<'t>, Option<u64>),
    /// The text has ended.
    Finish(Finish),
    /// So many tokens the answer has.
    Usage(u16),
    /// The model has failed.
    Failed,
    /// The stream ends.
    Done,
}

impl About {
    fn put_either<G: Group>(&self, g: &G, body: &mut Body<'_, '_>, chat: &[u8], completion: &[u8]) {
        body.put(g, if self.is_chat { chat } else { completion });
    }

    /// What stands before the choices.
    fn put_head<G: Group>(&self, g: &G, body: &mut Body<'_, '_>, object: &'static [u8]) {
        body.put(g, b"{\"id\":\"");
        self.put_either(g, body, b"chatcmpl-", b"cmpl-");
        body.put_number(g, self.place.into());
        body.put(g, b"-");
        body.put_number(g, self.number.into());
        body.put(g, b"\",\"object\":\"");
        body.put(g, object);
        body.put(g, b"\",\"created\":");
        body.put_number(g, self.created.into());
        body.put(g, b",\"model\":\"");
        body.put(g, MODEL);
        body.put(g, b"\",\"choices\":[");
    }

    fn put_usage<G: Group>(&self, g: &G, body: &mut Body<'_, '_>, tokens: u16) {
        let prompt = prompt_tokens(self.prompt as usize) as i64;
        body.put(g, b",\"usage\":{\"prompt_tokens\":");
        body.put_number(g, prompt);
        body.put(g, b",\"completion_tokens\":");
        body.put_number(g, tokens.into());
        body.put(g, b",\"total_tokens\":");
        body.put_number(g, prompt + i64::from(tokens));
        body.put(g, b"}");
    }

    /// Writes the answer of a request that is not streamed.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn put_whole<G: Group>(
        &self,
        g: &G,
        body: &mut Body<'_, '_>,
        text: Bytes<'_>,
        (finish, tokens): (Finish, u16),
    ) {
        self.put_head(g, body, if self.is_chat { b"chat.completion" } else { b"text_completion" });
        body.put(g, b"{\"index\":0,");
        if self.is_chat {
            body.put(g, b"\"message\":{\"role\":\"assistant\",\"content\":");
            json::Writer::new(g, body).text(text);
            body.put(g, b",\"refusal\":null}");
        } else {
            body.put(g, b"\"text\":");
            json::Writer::new(g, body).text(text);
        }
        body.put(g, b",\"logprobs\":null,\"finish_reason\":");
        body.put(g, Finish::json(Some(finish)));
        body.put(g, b"}]");
        self.put_usage(g, body, tokens);
        body.put(g, b"}\n");
    }

    /// Writes an event of a stream, with its framing.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn put_event<G: Group>(&self, g: &G, body: &mut Body<'_, '_>, event: &Event<'_>) {
        body.put(g, b"data: ");
        if let Event::Done = event {
            body.put(g, b"[DONE]\n\n");
            return;
        }
        if let Event::Failed = event {
            Refusal::Failed.put(g, body);
            body.put(g, b"\n\n");
            return;
        }
        self.put_head(g, body, if self.is_chat { b"chat.completion.chunk" } else { b"text_completion" });
        if let Event::Usage(tokens) = event {
            body.put(g, b"]");
            self.put_usage(g, body, *tokens);
            body.put(g, b"}\n\n");
            return;
        }
        self.put_either(g, body, b"{\"index\":0,\"delta\":{", b"{\"index\":0,\"text\":");
        let (text, stored) = match event {
            Event::Text(text, stored) => (*text, *stored),
            _ => (Bytes::EMPTY, None),
        };
        match (self.is_chat, event) {
            (true, Event::Role) => body.put(g, b"\"role\":\"assistant\",\"content\":\"\""),
            (true, Event::Finish(_)) => {}
            (is_chat, _) => {
                if is_chat {
                    body.put(g, b"\"content\":");
                }
                json::Writer::new(g, body).text(text);
            }
        }
        let finish = match event {
            Event::Finish(finish) => Some(*finish),
            _ => None,
        };
        self.put_either(g, body, b"}", b"");
        body.put(g, b",\"logprobs\":null,\"finish_reason\":");
        body.put(g, Finish::json(finish));
        body.put(g, b"}]");
        if self.has_usage {
            body.put(g, b",\"usage\":null");
        }
        if let Some(stored) = stored {
            body.put(g, b",\"stored_ns\":");
            body.put_number(g, stored as i64);
        }
        body.put(g, b"}\n\n");
    }
}
