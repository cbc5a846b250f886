//! Tokenizer metadata of a GGUF file.

use sparkinfer_gguf::Gguf;

use super::error::Result;
use super::vocab::{PREFIX, SpecialIds, VocabData};

/// Reads the file's tokenizer keys; only their kinds are checked.
pub(super) fn read(gguf: &Gguf) -> Result<VocabData<'_>> {
    let file = File(gguf);
    Ok(VocabData {
        file: gguf.label().to_owned(),
        model: gguf.metadata().require_str(&key("model"))?.to_owned(),
        pre: gguf.metadata().str(&key("pre"))?.map(str::to_owned),
        tokens: file.strings("tokens")?,
        types: gguf.metadata().list(&key("token_type"))?,
        scores: file.scores()?,
        merges: file.strings("merges")?,
        ids: file.ids()?,
        add_bos: gguf.metadata().bool(&key("add_bos_token"))?,
        add_eos: gguf.metadata().bool(&key("add_eos_token"))?,
        add_space_prefix: gguf.metadata().bool(&key("add_space_prefix"))?,
        suppress: gguf.metadata().list(&key("suppress_tokens"))?.unwrap_or_default(),
    })
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

struct File<'a>(&'a Gguf);

impl<'a> File<'a> {
    /// A list of texts; none if the key is missing.
    fn strings(&self, name: &str) -> Result<Vec<&'a str>> {
        let key = key(name);
        let Some(strings) = self.0.metadata().strings(&key)? else {
            return Ok(Vec::new());
        };
        let text = |(at, bytes)| {
            let wrong = |_| {
                self.0
                    .metadata()
                    .error(&key, format!("element {at} is not valid UTF-8"))
            };
            std::str::from_utf8(bytes).map_err(wrong)
        };
        Ok(strings.enumerate().map(text).collect::<std::result::Result<_, _>>()?)
    }

    /// Scores are floats; some writers store whole numbers.
    fn scores(&self) -> Result<Option<Vec<f32>>> {
        let (metadata, key) = (self.0.metadata(), key("scores"));
        if let Ok(whole) = metadata.list::<i32>(&key) {
            return Ok(whole.map(|scores| scores.into_iter().map(|score| score as f32).collect()));
        }
        Ok(metadata.list(&key)?)
    }

    fn ids(&self) -> Result<SpecialIds> {
        let id = |name: &str| self.0.metadata().u32(&key(&format!("{name}_token_id")));
        Ok(SpecialIds {
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            eom: id("eom")?,
            unk: id("unknown")?,
            pad: id("padding")?,
            fim_pre: id("fim_pre")?,
            fim_suf: id("fim_suf")?,
            fim_mid: id("fim_mid")?,
            fim_pad: id("fim_pad")?,
            fim_rep: id("fim_rep")?,
            fim_sep: id("fim_sep")?,
        })
    }
}
