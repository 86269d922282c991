//! `tools/*.toml`: what a tool promises, and the HTTP request that keeps it.

use super::findings::{Located, Place, did_you_mean};
use super::reader::{Reader, deepest, to_json};
use super::sections::{named_secret, read_hosts};
use operations::contract::{DeliveryRule, RetryRule, ToolContract};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;
use tools::http::template::{Place as TemplatePlace, Source};
use tools::http::{
    AllowedHosts, AnswerRules, BodyTemplate, HeaderSource, HttpToolSettings, LookUpSettings, Method, RequestTemplate,
    Template, TemplateError, UrlTemplate,
};
use vocab::ToolName;
use vocab::effect::{EffectClass, Priority};

#[derive(Clone, Debug)]
pub struct ToolConfig {
    pub contract: ToolContract,
    pub http: HttpToolSettings,
}

pub(super) fn read(r: Reader<'_, '_>, name: &str, shared_hosts: &AllowedHosts) -> Option<ToolConfig> {
    let description = r.required_text("description", "the model reads it to decide when to call the tool");
    let parameters = parameters(&r);
    if !r.has("effect") {
        let help = "`read`, `keyed`, `lookup` or `opaque`: what may be done when an answer is lost".to_owned();
        r.findings.mistake(&r.place_of("effect"), "is missing", Some(help));
    }
    let effect = r.choice(
        "effect",
        "opaque",
        &[
            ("read", EffectClass::Read),
            ("keyed", EffectClass::Keyed),
            ("lookup", EffectClass::Lookup),
            ("opaque", EffectClass::Opaque),
        ],
    );
    if effect == Some(EffectClass::Lookup) && !r.has("look_up") {
        let help = "add `[look_up]` with the `url` to ask, or use another effect class".to_owned();
        r.findings.mistake(&r.place_of("effect"), "`lookup` needs a look_up request", Some(help));
    }
    let intent_fields = r.texts("intent_fields");
    for field in &intent_fields {
        if let Some(known) = properties(&parameters)
            && !known.contains(&field.value.as_str())
        {
            let message = format!("the parameters have no `{}`", field.value);
            r.findings.mistake(&field.place, message, did_you_mean(&field.value, known));
        }
    }
    let resource = r.text("resource");
    if let Some(resource) = &resource {
        check_resource(&r, resource, &parameters);
    }
    let deadline = r.number_or("deadline_ms", 30_000, 100..=86_400_000);
    let attempt_timeout = r.number_or("attempt_timeout_ms", 10_000, 50..=600_000);
    // behaviour.md 4: 700 ms.
    let inline_wait = r.number_or("inline_wait_ms", 700, 0..=10_000);
    for bounded in [(&attempt_timeout, "attempt_timeout_ms"), (&inline_wait, "inline_wait_ms")] {
        if bounded.0.value > deadline.value {
            let place = if r.has(bounded.1) { &bounded.0.place } else { &deadline.place };
            let message = format!("{} ({}) is above deadline_ms ({})", bounded.1, bounded.0.value, deadline.value);
            r.findings.mistake(place, message, None);
        }
    }
    let retry = retry(&r);
    let max_running = r.number_or("max_running", 16, 1..=10_000).value as u32;
    let max_queued = r.number_or("max_queued", 64, 0..=1_000_000).value as u32;
    let delivery = delivery(&r);
    let effect = effect.unwrap_or(EffectClass::Opaque);
    let timeout = Duration::from_millis(attempt_timeout.value);
    let http = http(&r, name, effect, timeout, &parameters, shared_hosts);
    r.finish();
    let contract = ToolContract {
        name: ToolName::new(name),
        description: description?.value,
        parameters,
        effect,
        intent_fields: intent_fields.into_iter().map(|field| field.value).collect(),
        resource: resource.map(|resource| resource.value),
        deadline_ms: deadline.value,
        attempt_timeout_ms: attempt_timeout.value,
        retry,
        inline_wait_ms: inline_wait.value as u32,
        max_running,
        max_queued,
        delivery,
    };
    Some(ToolConfig { contract, http: http? })
}

fn at(place: &Place, span: std::ops::Range<usize>) -> Place {
    match place {
        Place::File { file, key, .. } => Place::File { file: *file, span, key: key.clone() },
        Place::Environment { .. } | Place::Nowhere { .. } => place.clone(),
    }
}

fn json_of(r: &Reader<'_, '_>, key: &str) -> Option<(Value, Place)> {
    let (raw, place) = r.raw(key)?;
    match to_json(raw) {
        Ok(value) => {
            if let Ok(shown) = toml::Value::try_from(&value) {
                r.note(key, shown.to_string(), Some(&place));
            }
            Some((value, place))
        }
        Err((span, message)) => {
            r.findings.mistake(&at(&place, span), message, None);
            None
        }
    }
}

/// The JSON Schema; a tool without one takes no arguments.
fn parameters(r: &Reader<'_, '_>) -> Value {
    let none = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let Some((schema, place)) = json_of(r, "parameters") else { return none() };
    let wrong = |pointer: &str, message: String| {
        let place = match r.raw("parameters") {
            Some((raw, _)) if !pointer.is_empty() => at(&place, deepest(raw, pointer).span()),
            Some(_) | None => place.clone(),
        };
        r.findings.mistake(&place, format!("not a JSON Schema: {message}"), None);
    };
    if schema.get("type") != Some(&json!("object")) {
        r.findings.mistake(&place, "must have `type = \"object\"`: arguments come by name", None);
    } else if let Err(error) = jsonschema::draft202012::meta::validate(&schema) {
        wrong(error.instance_path().as_str(), error.to_string());
    } else if let Err(error) = jsonschema::draft202012::new(&schema) {
        wrong(error.instance_path().as_str(), error.to_string());
    } else {
        return schema;
    }
    // Nothing can be said of places in a schema that is wrong itself.
    json!({"type": "object"})
}

fn properties(schema: &Value) -> Option<Vec<&str>> {
    Some(schema.get("properties")?.as_object()?.keys().map(String::as_str).collect())
}

fn retry(r: &Reader<'_, '_>) -> RetryRule {
    let t = r.table("retry");
    let base = t.number_or("base_ms", 200, 1..=3_600_000);
    let cap = t.number_or("cap_ms", 5_000, 1..=3_600_000);
    if base.value > cap.value {
        let place = if t.has("base_ms") { &base.place } else { &cap.place };
        t.findings.mistake(place, format!("base_ms ({}) is above cap_ms ({})", base.value, cap.value), None);
    }
    let max_attempts = t.number_or("max_attempts", 5, 1..=1_000).value as u32;
    t.finish();
    RetryRule { max_attempts, base_ms: base.value, cap_ms: cap.value }
}

fn delivery(r: &Reader<'_, '_>) -> DeliveryRule {
    let t = r.table("delivery");
    let priority = t.choice("priority", "normal", &[("normal", Priority::Normal), ("urgent", Priority::Urgent)]);
    let quiet_ms = t.number("quiet_ms", 200..=10_000).map(|n| n.value as u32);
    let stale_after_ms = t.number("stale_after_ms", 1..=31_536_000_000).map(|n| n.value);
    t.finish();
    DeliveryRule { priority: priority.unwrap_or_default(), quiet_ms, stale_after_ms }
}

fn http(
    r: &Reader<'_, '_>,
    name: &str,
    effect: EffectClass,
    timeout: Duration,
    parameters: &Value,
    shared_hosts: &AllowedHosts,
) -> Option<HttpToolSettings> {
    let h = r.table("http");
    if !r.has("http") {
        r.findings.mistake(&r.place_of("http"), "is missing", Some("add `[http]` with `method` and `url`".to_owned()));
        return None;
    }
    let mut allowed_hosts = shared_hosts.clone();
    read_hosts(&h, &mut allowed_hosts);
    let request = request(&h, effect != EffectClass::Read, None, parameters, &allowed_hosts);
    let refusal_statuses = match h.numbers("refusal_statuses", 400..=499) {
        Some(statuses) => statuses.into_iter().map(|status| status as u16).collect(),
        None => {
            h.note("refusal_statuses", "[409, 422]".to_owned(), None);
            BTreeSet::from([409, 422])
        }
    };
    let reference = h.text("reference");
    check_pointer(&h, reference.as_ref());
    let max_answer_bytes = h.number_or("max_answer_bytes", 65_536, 1..=16_777_216).value as usize;
    h.finish();
    let look_up = if r.has("look_up") {
        let l = r.table("look_up");
        let headers = request.as_ref().map(|request| request.headers.as_slice());
        let asked = self::request(&l, false, Some(headers.unwrap_or_default()), parameters, &allowed_hosts);
        let result = l.text("result");
        check_pointer(&l, result.as_ref());
        l.finish();
        asked.map(|request| LookUpSettings { request, result: result.map(|r| r.value) })
    } else {
        None
    };
    Some(HttpToolSettings {
        name: ToolName::new(name),
        request: request?,
        look_up,
        rules: AnswerRules { effect, refusal_statuses, reference: reference.map(|r| r.value) },
        timeout,
        allowed_hosts,
        max_answer_bytes,
    })
}

/// `inherited`: the headers of the request proper, for a look-up, which is always a GET without a body.
fn request(
    h: &Reader<'_, '_>,
    with_key: bool,
    inherited: Option<&[(String, HeaderSource)]>,
    parameters: &Value,
    allowed: &AllowedHosts,
) -> Option<RequestTemplate> {
    let method = match inherited {
        Some(_) => Some(Method::Get),
        None => h.choice("method", "POST", &Method::ALL.map(|method| (method.as_str(), method))),
    };
    let text = h.required_text("url", "for example `https://api.example.com/bookings/{/id}`");
    let url = text.and_then(|text| match UrlTemplate::parse(&text.value) {
        Ok(url) => {
            if let Err(refused) = allowed.check_url(url.origin()) {
                let origin = url.origin();
                let host = match (origin.host_str(), origin.port()) {
                    (Some(host), Some(port)) => format!("{host}:{port}"),
                    (host, _) => host.unwrap_or_default().to_owned(),
                };
                let help = format!("add \"{host}\" to `allowed_hosts` under [http], or to [tools] in answerback.toml");
                h.findings.mistake(&text.place, refused.to_string(), Some(help));
            }
            check_places(h, &text, url.places(), parameters);
            Some(url)
        }
        Err(error) => {
            template_mistake(h, &text, &error);
            None
        }
    });
    let headers = match (h.has("headers") || h.has("secret_headers"), inherited) {
        (false, Some(inherited)) => inherited.to_vec(),
        (true, _) | (false, None) => headers(h, parameters),
    };
    let mut body = None;
    if inherited.is_none()
        && let Some((raw, place)) = h.raw("body")
    {
        if let Some(method) = method
            && !method.carries_body()
        {
            h.findings.mistake(&place, format!("a {} request carries no body", method.as_str()), None);
        }
        check_body(h, raw, &place, parameters);
        body = json_of(h, "body").and_then(|(value, _)| BodyTemplate::from_value(&value).ok());
    }
    Some(RequestTemplate { method: method?, url: url?, headers, body, with_key })
}

/// Set by the request itself.
const OUR_HEADERS: [&str; 6] =
    ["host", "content-length", "content-type", "idempotency-key", "transfer-encoding", "connection"];
/// A header by this name holds a secret, whatever it looks like.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];

fn headers(h: &Reader<'_, '_>, parameters: &Value) -> Vec<(String, HeaderSource)> {
    let mut headers: Vec<(String, HeaderSource)> = Vec::new();
    let open = h.table("headers");
    for name in open.names() {
        let lower = name.to_ascii_lowercase();
        if SECRET_HEADERS.contains(&lower.as_str()) {
            let place = open.place_of(&name);
            open.raw(&name);
            open.findings.hide(&place);
            let help = format!("write `[http.secret_headers.{name}]` with `env = \"NAME\"` or `file = \"path\"`");
            open.findings.mistake(&place, "a secret does not stand in the config", Some(help));
            continue;
        }
        let Some(text) = open.text(&name) else { continue };
        check_header_name(&open, &name, &text.place);
        match Template::parse(&text.value) {
            Ok(template) => {
                check_places(&open, &text, template.places(), parameters);
                headers.push((lower, HeaderSource::Template(template)));
            }
            Err(error) => template_mistake(&open, &text, &error),
        }
    }
    open.finish();
    let secret = h.table("secret_headers");
    for name in secret.names() {
        let table = secret.table(&name);
        check_header_name(&secret, &name, &table.place);
        let prefix = table.text("prefix").map(|text| text.value).unwrap_or_default();
        if let Some(secret) = named_secret(&table) {
            headers.push((name.to_ascii_lowercase(), HeaderSource::Secret { prefix, secret }));
        }
        table.finish();
    }
    secret.finish();
    headers
}

fn check_header_name(r: &Reader<'_, '_>, name: &str, place: &Place) {
    if OUR_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        r.findings.mistake(place, format!("the header `{name}` is set by the request itself"), None);
    } else if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        r.findings.mistake(place, format!("`{name}` cannot name a header"), None);
    }
}

/// Every text of the body, each at its own place.
fn check_body(h: &Reader<'_, '_>, value: &Spanned<DeValue<'_>>, place: &Place, parameters: &Value) {
    match value.get_ref() {
        DeValue::String(text) => {
            let text = Located { value: text.to_string(), place: at(place, value.span()) };
            match Template::parse(&text.value) {
                Ok(template) => check_places(h, &text, template.places(), parameters),
                Err(error) => template_mistake(h, &text, &error),
            }
        }
        DeValue::Array(list) => list.iter().for_each(|element| check_body(h, element, place, parameters)),
        DeValue::Table(table) => {
            for (key, value) in table {
                let place = match place {
                    Place::File { file, span, key: path } => {
                        Place::File { file: *file, span: span.clone(), key: format!("{path}.{}", key.get_ref()) }
                    }
                    Place::Environment { .. } | Place::Nowhere { .. } => place.clone(),
                };
                check_body(h, value, &place, parameters);
            }
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

fn template_mistake(r: &Reader<'_, '_>, text: &Located<String>, error: &TemplateError) {
    r.findings.mistake(&r.findings.inside(text, error.at), error.message.clone(), None);
}

/// Each argument that a template takes must be one that the schema knows, and one that is always there unless the
/// place is optional.
fn check_places<'p>(
    r: &Reader<'_, '_>,
    text: &Located<String>,
    places: impl Iterator<Item = &'p TemplatePlace>,
    parameters: &Value,
) {
    for place in places {
        let pointer = match &place.source {
            Source::Argument(pointer) => pointer,
            Source::Operation | Source::Key | Source::Caller | Source::Session => continue,
        };
        let found = text.value.find(&format!("{{{pointer}")).unwrap_or(0);
        let mistake = |message: String, help: Option<String>| {
            r.findings.mistake(&r.findings.inside(text, found), message, help);
        };
        let mut schema = parameters;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            // Where the schema says nothing of its fields (lists, references), nothing can be checked.
            let Some(known) = properties(schema) else { break };
            if !known.contains(&token.as_str()) {
                mistake(format!("the parameters have no `{token}` for `{{{pointer}}}`"), did_you_mean(&token, known));
                break;
            }
            let required = schema["required"].as_array().is_some_and(|r| r.iter().any(|name| *name == json!(token)));
            if !required && !place.optional {
                let help = format!("make `{token}` required, or write `{{{pointer}?}}` to leave it out when absent");
                mistake(format!("`{token}` may be absent, and the request needs it"), Some(help));
                break;
            }
            schema = &schema["properties"][&token];
        }
    }
}

/// Only `{/pointer}`; an absent argument leaves nothing in its place, so optional ones are welcome.
fn check_resource(r: &Reader<'_, '_>, text: &Located<String>, parameters: &Value) {
    match Template::parse(&text.value) {
        Ok(template) => {
            for place in template.places() {
                match &place.source {
                    Source::Argument(_) if !place.optional => {
                        let optional = TemplatePlace { source: place.source.clone(), optional: true };
                        check_places(r, text, std::iter::once(&optional), parameters);
                    }
                    Source::Argument(_) | Source::Operation | Source::Key | Source::Caller | Source::Session => {
                        let message = format!("a resource takes arguments only, as `{{/argument}}`, not `{place}`");
                        r.findings.mistake(&text.place, message, None);
                    }
                }
            }
        }
        Err(error) => template_mistake(r, text, &error),
    }
}

/// A JSON Pointer into an answer.
fn check_pointer(r: &Reader<'_, '_>, pointer: Option<&Located<String>>) {
    if let Some(pointer) = pointer
        && (!pointer.value.starts_with('/')
            || pointer.value.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])))
    {
        let message = format!("`{}` is not a JSON Pointer, such as `/reference`", pointer.value);
        r.findings.mistake(&pointer.place, message, None);
    }
}
