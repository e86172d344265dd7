//! What a request asks for: the JSON of OpenAI's API, read where it lies.

use crate::refusal::Refusal;
use crate::slots::{MAX_STOP, MAX_STOPS, Slot};
use gpunet_device::Group;
use gpunet_http::json::{Error, Kind, Reader, Text};
use gpunet_serve::Bytes;
use gpunet_tokens_model::{ASSISTANT, CONTEXT, USER};

/// The name of the model.
pub(crate) const MODEL: &[u8] = b"gpunet-tokens";
/// Tokens of a completion for which the request names no number, as in OpenAI's API.
const DEFAULT_MOST: usize = 16;

/// A request for tokens. Its prompt and stop sequences are in the place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    /// Bytes of the prompt.
    pub(crate) prompt: usize,
    /// Tokens of the answer, at most.
    pub(crate) most: usize,
    pub(crate) temperature: f32,
    pub(crate) seed: Option<u64>,
    pub(crate) stops: usize,
    pub(crate) is_stream: bool,
    /// The stream tells at its end how many tokens there were.
    pub(crate) has_usage: bool,
    /// The answer goes on when the model has ended the text, as with vLLM's `ignore_eos`: for
    /// measurements, which need answers of one length.
    pub(crate) ignores_end: bool,
}

/// Tokens of a prompt of so many bytes: one says that the text begins.
pub(crate) const fn prompt_tokens(bytes: usize) -> usize {
    bytes + 1
}

type Result<'t, T> = core::result::Result<T, Refusal<'t>>;

/// Reads a request, and puts its prompt and stop sequences into the place.
///
/// # Cooperation
/// All lanes call it with the same body.
///
/// # Errors
/// Why it is refused.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn read<'t, G: Group>(g: &G, body: Bytes<'t>, slot: Slot, is_chat: bool) -> Result<'t, Asked> {
    let mut fields = Fields { g, json: Reader::new(body), slot, prompt: 0, stops: 0 };
    let (mut model, mut has_prompt, mut most) = (None, false, None);
    let (mut temperature, mut seed, mut is_stream, mut has_usage) = (1.0, None, false, false);
    let mut ignores_end = false;
    fields.json.object().map_err(|error| refusal(error, b"body", b"a JSON object"))?;
    while let Some(name) = fields.json.member().map_err(syntax)? {
        let is_null = fields.json.kind().map_err(syntax)? == Kind::Null;
        if is_null {
            // As if it were not there.
            fields.json.null().map_err(syntax)?;
        } else if name.is(b"model") {
            model = Some(fields.text(b"model", b"a string")?);
        } else if !is_chat && name.is(b"prompt") {
            fields.prompt()?;
            has_prompt = true;
        } else if is_chat && name.is(b"messages") {
            fields.messages()?;
            has_prompt = true;
        } else if name.is(b"max_tokens") {
            most = Some(fields.most(b"max_tokens")?);
        } else if is_chat && name.is(b"max_completion_tokens") {
            most = Some(fields.most(b"max_completion_tokens")?);
        } else if name.is(b"temperature") {
            temperature = fields.temperature()?;
        } else if name.is(b"seed") {
            seed = Some(fields.integer(b"seed", b"an integer")? as u64);
        } else if name.is(b"stream") {
            is_stream = fields.bool(b"stream")?;
        } else if name.is(b"stream_options") {
            has_usage = fields.stream_options()?;
        } else if name.is(b"ignore_eos") {
            ignores_end = fields.bool(b"ignore_eos")?;
        } else if name.is(b"stop") {
            fields.stops()?;
        } else {
            fields.other(name, is_chat)?;
        }
    }
    let at_end = fields.json.end();
    at_end.map_err(syntax)?;
    match model {
        None => return Err(Refusal::Missing(b"model")),
        Some(name) if !name.is(MODEL) => return Err(Refusal::NoModel(name)),
        Some(_) => {}
    }
    if !has_prompt {
        return Err(Refusal::Missing(if is_chat { b"messages" } else { b"prompt" }));
    }
    if is_chat {
        fields.put(ASSISTANT);
        // The model's answers are lines.
        slot.put_stop(g, fields.stops, b"\n".into());
        fields.stops += 1;
    }
    let (prompt, stops) = (fields.prompt, fields.stops);
    let tokens = prompt_tokens(prompt);
    let room = CONTEXT.saturating_sub(tokens);
    let most = match most {
        None if room == 0 => return Err(Refusal::TooLong { prompt: tokens, most: 1 }),
        None if is_chat => room,
        None => DEFAULT_MOST.min(room),
        Some(most) if most > room => return Err(Refusal::TooLong { prompt: tokens, most }),
        Some(most) => most,
    };
    Ok(Asked { prompt, most, temperature, seed, stops, is_stream, has_usage, ignores_end })
}

/// What is no document. What is asked for by its kind is known to be there.
fn syntax<'t>(error: Error) -> Refusal<'t> {
    refusal(error, b"body", b"a JSON object")
}

const fn refusal<'t>(error: Error, field: &'static [u8], wants: &'static [u8]) -> Refusal<'t> {
    match error {
        Error::Syntax(at) => Refusal::Syntax(at),
        Error::Depth => Refusal::Depth,
        Error::Kind => Refusal::Value { field, wants },
    }
}

/// The one value of a field that this server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    One,
    Zero,
    False,
    /// As if the field were not there.
    Null,
}

impl Only {
    const fn text(self) -> &'static [u8] {
        match self {
            Self::One => b"1",
            Self::Zero => b"0",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }
}

/// The fields, one after another.
struct Fields<'g, 't, G> {
    g: &'g G,
    json: Reader<'t>,
    slot: Slot,
    /// Bytes of the prompt so far.
    prompt: usize,
    stops: usize,
}

impl<'t, G: Group> Fields<'_, 't, G> {
    fn text(&mut self, field: &'static [u8], wants: &'static [u8]) -> Result<'t, Text<'t>> {
        self.json.text().map_err(|error| refusal(error, field, wants))
    }

    fn bool(&mut self, field: &'static [u8]) -> Result<'t, bool> {
        self.json.bool().map_err(|error| refusal(error, field, b"true or false"))
    }

    fn integer(&mut self, field: &'static [u8], wants: &'static [u8]) -> Result<'t, i64> {
        let number = self.json.number().map_err(|error| refusal(error, field, wants))?;
        number.integer().ok_or(Refusal::Value { field, wants })
    }

    fn most(&mut self, field: &'static [u8]) -> Result<'t, usize> {
        const WANTS: &[u8] = b"an integer of at least 1";
        let number = self.integer(field, WANTS)?;
        if number < 1 {
            return Err(Refusal::Value { field, wants: WANTS });
        }
        // What is beyond any context is as long as what is beyond this one.
        Ok(number.min(1 << 30) as usize)
    }

    fn temperature(&mut self) -> Result<'t, f32> {
        let (field, wants): (&[u8], &[u8]) = (b"temperature", b"a number from 0 to 2");
        let number = self.json.number().map_err(|error| refusal(error, field, wants))?.float();
        if (0.0..=2.0).contains(&number) { Ok(number as f32) } else { Err(Refusal::Value { field, wants }) }
    }

    /// Appends bytes to the prompt. What is too long is counted.
    fn put<'b>(&mut self, bytes: impl Into<Bytes<'b>>) {
        let bytes = bytes.into();
        self.slot.put_prompt(self.g, self.prompt, bytes);
        self.prompt += bytes.len();
    }

    /// Appends a string to the prompt, without its escapes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn put_text(&mut self, text: &Text<'t>) {
        if let Some(plain) = text.plain() {
            return self.put(plain);
        }
        let (mut piece, mut len) = ([0; 32], 0);
        for byte in text.bytes() {
            if let Some(place) = piece.get_mut(len) {
                *place = byte;
            }
            len += 1;
            if len == piece.len() {
                self.put(&piece);
                len = 0;
            }
        }
        self.put(Bytes::from(&piece).first(len));
    }

    /// A string, or an array of one.
    fn prompt(&mut self) -> Result<'t, ()> {
        let (field, wants): (&[u8], &[u8]) = (b"prompt", b"a string, or an array of one string");
        self.prompt = 0;
        if self.json.kind().map_err(syntax)? == Kind::Array {
            self.json.array().map_err(syntax)?;
            if !self.json.element().map_err(syntax)? {
                return Err(Refusal::Value { field, wants });
            }
            let text = self.text(field, wants)?;
            self.put_text(&text);
            return match self.json.element().map_err(syntax)? {
                true => Err(Refusal::Value { field, wants }),
                false => Ok(()),
            };
        }
        let text = self.text(field, wants)?;
        self.put_text(&text);
        Ok(())
    }

    /// The messages of a chat become the prompt: `User: ...`, `Assistant: ...`, a line for each.
    fn messages(&mut self) -> Result<'t, ()> {
        let (field, wants): (&[u8], &[u8]) = (b"messages", b"an array of objects with a role and a content");
        self.prompt = 0;
        self.json.array().map_err(|error| refusal(error, field, wants))?;
        let mut count = 0;
        while self.json.element().map_err(syntax)? {
            self.json.object().map_err(|error| refusal(error, field, wants))?;
            self.message()?;
            count += 1;
        }
        if count == 0 {
            Err(Refusal::Value { field, wants: b"an array of at least one message" })
        } else {
            Ok(())
        }
    }

    fn message(&mut self) -> Result<'t, ()> {
        // The role may follow the content: a copy of the reader finds it first.
        let mut ahead = self.json;
        let mut role = None;
        while let Some(name) = ahead.member().map_err(syntax)? {
            if name.is(b"role") {
                const WANTS: &[u8] = b"system, developer, user or assistant";
                let text = ahead.text().map_err(|error| refusal(error, b"messages.role", WANTS))?;
                role = Some(match () {
                    () if text.is(b"assistant") => ASSISTANT,
                    () if text.is(b"user") => USER,
                    // The model knows no others: what they say stands in front, as it is.
                    () if text.is(b"system") || text.is(b"developer") => b"",
                    () => return Err(Refusal::Value { field: b"messages.role", wants: WANTS }),
                });
            } else {
                ahead.skip().map_err(syntax)?;
            }
        }
        let Some(role) = role else { return Err(Refusal::Missing(b"messages.role")) };
        self.put(role);
        let mut has_content = false;
        while let Some(name) = self.json.member().map_err(syntax)? {
            if name.is(b"content") {
                self.content()?;
                has_content = true;
            } else {
                self.json.skip().map_err(syntax)?;
            }
        }
        self.put(b"\n");
        if has_content { Ok(()) } else { Err(Refusal::Missing(b"messages.content")) }
    }

    /// A string, or an array of parts of type `text`.
    fn content(&mut self) -> Result<'t, ()> {
        let (field, wants): (&[u8], &[u8]) = (b"messages.content", b"a string, or an array of parts of text");
        if self.json.kind().map_err(syntax)? != Kind::Array {
            let text = self.text(field, wants)?;
            self.put_text(&text);
            return Ok(());
        }
        self.json.array().map_err(syntax)?;
        while self.json.element().map_err(syntax)? {
            self.json.object().map_err(|error| refusal(error, field, wants))?;
            let mut has_text = false;
            while let Some(name) = self.json.member().map_err(syntax)? {
                if name.is(b"text") {
                    let text = self.text(field, wants)?;
                    self.put_text(&text);
                    has_text = true;
                } else {
                    self.json.skip().map_err(syntax)?;
                }
            }
            if !has_text {
                return Err(Refusal::Value { field, wants });
            }
        }
        Ok(())
    }

    fn stream_options(&mut self) -> Result<'t, bool> {
        let (field, wants): (&[u8], &[u8]) = (b"stream_options", b"an object with include_usage");
        self.json.object().map_err(|error| refusal(error, field, wants))?;
        let mut has_usage = false;
        while let Some(name) = self.json.member().map_err(syntax)? {
            if name.is(b"include_usage") {
                has_usage = self.bool(b"stream_options.include_usage")?;
            } else {
                self.json.skip().map_err(syntax)?;
            }
        }
        Ok(has_usage)
    }

    /// A string, or an array of strings.
    fn stops(&mut self) -> Result<'t, ()> {
        self.stops = 0;
        if self.json.kind().map_err(syntax)? != Kind::Array {
            return self.stop();
        }
        self.json.array().map_err(syntax)?;
        while self.json.element().map_err(syntax)? {
            self.stop()?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<'t, ()> {
        let (field, wants): (&[u8], &[u8]) = (b"stop", b"up to 4 strings of 1 to 32 bytes");
        let text = self.text(field, wants)?;
        let mut buffer = [0; MAX_STOP];
        match text.decode(&mut buffer) {
            Some(stop) if !stop.is_empty() && self.stops < MAX_STOPS - 1 => {
                self.slot.put_stop(self.g, self.stops, Bytes::from(stop));
                self.stops += 1;
                Ok(())
            }
            _ => Err(Refusal::Value { field, wants }),
        }
    }

    /// Fields that change nothing here, and those of which this server has one value only.
    fn other(&mut self, name: Text<'t>, is_chat: bool) -> Result<'t, ()> {
        if name.is(b"user") || name.is(b"metadata") || name.is(b"store") || name.is(b"service_tier") {
            return self.json.skip().map_err(syntax);
        }
        let (field, only): (&'static [u8], Only) = match () {
            () if name.is(b"n") => (b"n", Only::One),
            () if name.is(b"top_p") => (b"top_p", Only::One),
            () if name.is(b"best_of") && !is_chat => (b"best_of", Only::One),
            () if name.is(b"presence_penalty") => (b"presence_penalty", Only::Zero),
            () if name.is(b"frequency_penalty") => (b"frequency_penalty", Only::Zero),
            () if name.is(b"echo") && !is_chat => (b"echo", Only::False),
            () if name.is(b"logprobs") && is_chat => (b"logprobs", Only::False),
            () if name.is(b"logprobs") => (b"logprobs", Only::Null),
            () if name.is(b"suffix") && !is_chat => (b"suffix", Only::Null),
            () if name.is(b"logit_bias") => (b"logit_bias", Only::Null),
            () if name.is(b"response_format") && is_chat => (b"response_format", Only::Null),
            () if name.is(b"tools") && is_chat => (b"tools", Only::Null),
            () if name.is(b"tool_choice") && is_chat => (b"tool_choice", Only::Null),
            () => return Err(Refusal::Unknown(name)),
        };
        let refused = Refusal::Unsupported { field, wants: only.text() };
        let is_same = match (self.json.kind().map_err(syntax)?, only) {
            (Kind::Number, Only::One) => self.json.number().map_err(syntax)?.float() == 1.0,
            (Kind::Number, Only::Zero) => self.json.number().map_err(syntax)?.float() == 0.0,
            (Kind::Bool, Only::False) => !self.json.bool().map_err(syntax)?,
            _ => false,
        };
        if is_same { Ok(()) } else { Err(refused) }
    }
}
