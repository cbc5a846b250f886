use super::*;

fn render(source: &str, messages: &[Message], options: &RenderOptions) -> Result<String> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(messages, options)
}

fn conversation() -> Vec<Message> {
    vec![Message::new("system", "Be brief."), Message::new("user", "Hi <b>&'\"")]
}

fn without_prompt() -> RenderOptions {
    RenderOptions {
        add_generation_prompt: false,
        ..RenderOptions::default()
    }
}

#[test]
fn chatml_is_the_fallback() {
    let text = render(CHATML, &conversation(), &RenderOptions::default()).unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b>&'\"<|im_end|>\n<|im_start|>assistant\n"
    );
    let text = render(CHATML, &conversation(), &without_prompt()).unwrap();
    assert!(text.ends_with("<|im_end|>\n"), "{text}");
}

#[test]
fn blocks_are_trimmed_as_in_hugging_face() {
    let source = "  {% if true %}\n  a\n  {%- endif %}\n{{ bos_token }}\n";
    assert_eq!(render(source, &[], &without_prompt()).unwrap(), "  a<s>");
}

#[test]
fn python_methods_and_values() {
    let source = "{{ 'a-b'.split('-')[-1] }}{{ ' x '.strip() }}{{ messages[0].get('no', 7) }}{{ true }}{{ none }}\
                  {{ messages[::-1][0]['content'].startswith('Hi') }}";
    let text = render(source, &conversation(), &without_prompt()).unwrap();
    assert_eq!(text, "bx7TrueNoneTrue");
}

#[test]
fn values_are_there_only_when_they_should_be() {
    let source = "{{ tools is defined }} {{ add_generation_prompt is defined }} {{ enable_thinking }} {{ answer }}";
    let mut options = without_prompt();
    options.extra.insert("answer".into(), 42.into());
    assert_eq!(render(source, &[], &options).unwrap(), "False False True 42");
    options.tools.push(serde_json::json!({"name": "f"}));
    options.enable_thinking = false;
    assert_eq!(render(source, &[], &options).unwrap(), "True False False 42");
}

#[test]
fn time_comes_from_the_options() {
    let mut options = without_prompt();
    options.now = SystemTime::UNIX_EPOCH;
    let text = render("{{ strftime_now('%d %b %Y') }}", &[], &options).unwrap();
    assert_eq!(text, "01 Jan 1970");
}

#[test]
fn templates_can_refuse() {
    let refused = render("{{ raise_exception('roles must alternate') }}", &[], &without_prompt());
    assert_eq!(refused, Err(ChatError::Refused("roles must alternate".into())));
    let refused = render(
        "{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}",
        &[],
        &without_prompt(),
    );
    assert_eq!(refused, Err(ChatError::Refused("no".into())));
}

#[test]
fn broken_sources_say_where() {
    let error = ChatTemplate::new("a\n{% if %}", "", "").unwrap_err().to_string();
    assert!(error.starts_with("the chat template is not valid: "), "{error}");
    assert!(error.ends_with("(line 2)"), "{error}");
}

#[test]
fn hostile_templates_run_out_of_budget() {
    for source in [
        "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{{ 'x' * 1000000000000 }}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{{ '%1000000000d' | format(1) }}",
        "{% include 'chat template' %}",
    ] {
        let failed = render(source, &[], &without_prompt());
        assert!(matches!(failed, Err(ChatError::Failed(_))), "{source}: {failed:?}");
    }
}

#[test]
fn training_marks_mean_nothing() {
    let source = "a {% generation %}b{%- endgeneration -%} c";
    assert_eq!(render(source, &[], &without_prompt()).unwrap(), "a bc");
}
