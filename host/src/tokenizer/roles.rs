//! Which tokens end a generation, and which are control tokens whatever their type says.
//!
//! Files do not list the end-of-generation tokens; they are known by their texts. The lists are
//! those of llama.cpp, so that both engines stop at the same place.

use std::collections::BTreeSet;

use super::vocab::{SpecialIds, TokenKind, Vocab};

/// Texts that end a generation wherever they are in a vocabulary.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A role, the texts that have it, and whether it ends a generation.
struct Role {
    id: fn(&mut SpecialIds) -> &mut Option<u32>,
    texts: &'static [&'static str],
    ends: bool,
}

/// Roles that are looked up by text where the metadata names no id.
const ROLES: &[Role] = &[
    Role {
        id: |ids| &mut ids.fim_pre,
        texts: &["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>"],
        ends: false,
    },
    Role {
        id: |ids| &mut ids.fim_suf,
        texts: &["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>"],
        ends: false,
    },
    Role {
        id: |ids| &mut ids.fim_mid,
        texts: &["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>"],
        ends: false,
    },
    Role {
        id: |ids| &mut ids.fim_pad,
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        ends: true,
    },
    Role {
        id: |ids| &mut ids.fim_rep,
        texts: &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
        ends: true,
    },
    Role {
        id: |ids| &mut ids.fim_sep,
        texts: &["<|file_sep|>"],
        ends: true,
    },
];

/// Finds the roles, marks their tokens as control tokens, and returns the ids that end a
/// generation.
pub(super) fn assign(vocab: &mut Vocab) -> BTreeSet<u32> {
    let mut ends = BTreeSet::new();
    for role in ROLES {
        let found = find_role(vocab, role);
        ends.extend(found.filter(|_| role.ends));
    }
    for id in END_TEXTS.iter().filter_map(|text| vocab.id(text)).collect::<Vec<_>>() {
        vocab.set_kind(id, TokenKind::Control);
        ends.insert(id);
    }
    let SpecialIds { eos, eot, eom, .. } = vocab.ids;
    ends.extend([eos, eot, eom].into_iter().flatten());
    keep_inner_ends(vocab, &mut ends);
    ends
}

/// The role's token: the metadata's, else the first known text, which then becomes a control
/// token.
fn find_role(vocab: &mut Vocab, role: &Role) -> Option<u32> {
    if let Some(id) = *(role.id)(&mut vocab.ids) {
        return Some(id);
    }
    let id = role.texts.iter().find_map(|text| vocab.id(text))?;
    vocab.set_kind(id, TokenKind::Control);
    *(role.id)(&mut vocab.ids) = Some(id);
    Some(id)
}

/// Two families have an end text that does not end their generations: `<|end|>` closes only a
/// part of the answer where `<|return|>` or `<|flush|>` closes the whole, and `</s>` is ordinary
/// text (an HTML tag) beside `<|tool_response>`.
fn keep_inner_ends(vocab: &mut Vocab, ends: &mut BTreeSet<u32>) {
    let has = |text| vocab.id(text).is_some_and(|id| ends.contains(&id));
    let calls = has("<|call|>") || has("<|calls|>");
    let parts = calls && (has("<|return|>") || has("<|flush|>"));
    let html = has("<|tool_response>");
    for (applies, text, kind) in [
        (parts, "<|end|>", TokenKind::UserDefined),
        (html, "</s>", TokenKind::Normal),
    ] {
        let id = vocab.id(text).filter(|id| applies && ends.remove(id));
        if let Some(id) = id {
            vocab.set_kind(id, kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocab::VocabData;
    use super::*;

    fn vocab(tokens: &[&str], types: &[i32]) -> Vocab {
        let data = VocabData {
            tokens: tokens.to_vec(),
            types: Some(types.to_vec()),
            ..VocabData::default()
        };
        Vocab::new(&data).unwrap()
    }

    #[test]
    fn end_texts_become_control_tokens() {
        let mut vocab = vocab(&["a", "<eos>", "<|fim_pad|>", "<|fim_prefix|>"], &[1, 1, 4, 4]);
        vocab.ids.eot = Some(0);
        assert_eq!(assign(&mut vocab), BTreeSet::from([0, 1, 2]));
        assert_eq!(vocab.kind(0), TokenKind::Normal);
        assert_eq!(vocab.kind(1), TokenKind::Control);
        assert_eq!(vocab.kind(2), TokenKind::Control);
        assert_eq!(vocab.kind(3), TokenKind::Control);
        assert_eq!(vocab.ids.fim_pre, Some(3));
    }

    #[test]
    fn html_strike_out_is_text_beside_tool_responses() {
        let mut vocab = vocab(&["</s>", "<|tool_response>"], &[3, 4]);
        assert_eq!(assign(&mut vocab), BTreeSet::from([1]));
        assert_eq!(vocab.kind(0), TokenKind::Normal);
    }

    #[test]
    fn end_of_a_part_is_not_the_end_of_an_answer() {
        let mut vocab = vocab(&["<|end|>", "<|return|>", "<|call|>"], &[3, 3, 3]);
        assert_eq!(assign(&mut vocab), BTreeSet::from([1, 2]));
        assert_eq!(vocab.kind(0), TokenKind::UserDefined);
    }
}
