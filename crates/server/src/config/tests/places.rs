//! Each kind of mistake, with the words and the place that it is told with.

use super::{AGENT, Folder, TOOL, assert_mistake, good};

#[test]
fn each_mistake_in_the_main_file_is_told_with_its_place() {
    for (main, expected) in [
        ("[server]\nbnd = \"x\"", "answerback.toml:2:1: server.bnd: unknown key (did you mean `bind`?)"),
        ("[sever]\nbind = \"x\"", "answerback.toml:1:2: sever: unknown key (did you mean `server`?)"),
        (
            "[server]\nbind = \"here\"",
            "answerback.toml:2:8: server.bind: must be an address and a port, such as `0.0.0.0:8080`",
        ),
        ("[server]\nbind = 8080", "answerback.toml:2:8: server.bind: must be a text, not an integer"),
        ("server = 1", "answerback.toml:1:10: server: must be a table, not an integer"),
        ("[server]\nmax_calls = 0", "answerback.toml:2:13: server.max_calls: must be a whole number from 1 to 100000"),
        ("[server]\nmax_calls = -3", "answerback.toml:2:13: server.max_calls: must be a whole number from 1 to 100000"),
        ("[server]\nmax_calls = \"3\"", "answerback.toml:2:13: server.max_calls: must be a whole number, not a text"),
        (
            "[server]\nmax_calls = 99999999999999999999",
            "answerback.toml:2:13: server.max_calls: must be a whole number from 1 to 100000",
        ),
        (
            "[server]\npublic_url = \"voice\"",
            "answerback.toml:2:14: server.public_url: must be a URL (for example `https://voice.example.com`)",
        ),
        (
            "[server]\npublic_url = \"http://voice.example.com\"",
            "answerback.toml:2:14: server.public_url: must be an https URL (plain http is only for simulated calls on this machine, as `http://127.0.0.1:8080`)",
        ),
        (
            "[server]\npublic_url = \"https://h/?a\"",
            "answerback.toml:2:14: server.public_url: must have no `?` and no `#` (paths are added to it)",
        ),
        (
            "[server]\ndefault_agent = \"ana\"",
            "answerback.toml:2:17: server.default_agent: there is no agent `ana` in agents/ (did you mean `anna`?)",
        ),
        (
            "[twilio]\naccount_sids = [\"AC1\"]",
            "answerback.toml:2:17: twilio.account_sids: must be an account SID: `AC` and 32 hex digits",
        ),
        ("[twilio]\naccount_sids = [1]", "answerback.toml:2:17: twilio.account_sids: must be a text, not an integer"),
        (
            "[twilio]\nverify = false",
            "answerback.toml:2:1: twilio.verify: unknown key (known here: `account_sids`, `shared_keys`, `auth_token_file`, `auth_token`, `auth_token_next_file`, `auth_token_next`)",
        ),
        (
            "[twilio.shared_keys.SK1]\nenv = \"NOT_SET\"",
            "answerback.toml:2:7: twilio.shared_keys.SK1.env: the environment variable NOT_SET is not set",
        ),
        ("[server]\ndata_dir = \"\"", "answerback.toml:2:12: server.data_dir: is empty (leave it out for `data`)"),
        ("[model]\nvoice = \" \"", "answerback.toml:2:9: model.voice: is empty (leave it out for `marin`)"),
        ("[model]\nmodel = \"\"", "answerback.toml:2:9: model.model: is empty (leave it out for `gpt-realtime-2.1`)"),
        (
            "[model]\nbase_url = \"wss://ann:secret@api.example.com/v1\"",
            "answerback.toml:2:12: model.base_url: must hold no user name and no password (the provider is shown the key: OPENAI_API_KEY, or `api_key_file`)",
        ),
        (
            "[model]\nbase_url = \"ws://:secret@127.0.0.1:9200/v1\"",
            "answerback.toml:2:12: model.base_url: must hold no user name and no password (the provider is shown the key: OPENAI_API_KEY, or `api_key_file`)",
        ),
        (
            "[model]\nprovider = \"openai\"",
            "answerback.toml:2:12: model.provider: must be one of `openai_realtime`, `gpt_live`",
        ),
        (
            "[model]\neagerness = \"hihg\"",
            "answerback.toml:2:13: model.eagerness: must be one of `low`, `medium`, `high`, `auto` (did you mean `high`?)",
        ),
        (
            "[model]\nbase_url = \"ws://far.example\"",
            "answerback.toml:2:12: model.base_url: must be a `wss://` URL (plain `ws://` only to 127.0.0.1: the key would travel in the open)",
        ),
        (
            "[audio]\ndetector = \"earshot\"\nmode = \"quality\"",
            "answerback.toml:3:8: audio.mode: belongs to `detector = \"webrtc\"`",
        ),
        (
            "[audio]\ndetector = \"webrtc\"\nthreshold = 0.4",
            "answerback.toml:3:13: audio.threshold: belongs to `detector = \"cascade\"` or `\"earshot\"`",
        ),
        ("[audio]\nmode = \"quality\"", "answerback.toml:2:8: audio.mode: belongs to `detector = \"webrtc\"`"),
        (
            "[audio]\ndetector = \"earshot\"\nthreshold = 1.5",
            "answerback.toml:3:13: audio.threshold: must be a number from 0 to 1",
        ),
        (
            "[executor]\nlook_up_base_ms = 9000\nlook_up_cap_ms = 100",
            "answerback.toml:2:19: executor.look_up_base_ms: must not be above look_up_cap_ms (100)",
        ),
        (
            "[tools]\nallowed_hosts = [\"*.x\"]",
            "answerback.toml:2:18: tools.allowed_hosts: `*.x` is not a host: write `api.example.com`, `api.example.com:8443`, `10.1.2.3:80` or `10.0.0.0/8`",
        ),
        (
            "[server]\nadmin_token_file = \"gone\"",
            "answerback.toml:2:20: server.admin_token_file: cannot read gone: No such file or directory (os error 2)",
        ),
    ] {
        assert_mistake(&good(main).mistakes(&[]), expected);
    }
}

#[test]
fn each_mistake_in_an_agent_is_told_with_its_place() {
    let with = |more: &str| format!("{AGENT}{more}");
    for (agent, expected) in [
        (
            "tools = []".to_owned(),
            "agents/anna.toml:1:1: instructions: is missing (write `instructions = \"\"\"…\"\"\"`, or `instructions_file` with a path)",
        ),
        (
            "instructions = \" \"".to_owned(),
            "agents/anna.toml:1:16: instructions: is empty (write `instructions = \"\"\"…\"\"\"`, or `instructions_file` with a path)",
        ),
        (
            "instructions_file = \"gone.md\"".to_owned(),
            "agents/anna.toml:1:21: instructions_file: cannot read gone.md: No such file or directory (os error 2)",
        ),
        (
            "instructions = \"x\"\ntools = [\"boook\"]".to_owned(),
            "agents/anna.toml:2:10: tools: there is no tool `boook` (did you mean `book`?)",
        ),
        (
            "instructions = \"x\"\ntools = [\"book\", \"book\"]".to_owned(),
            "agents/anna.toml:2:18: tools: `book` is named twice",
        ),
        (with("voise = \"x\""), "agents/anna.toml:3:1: voise: unknown key (did you mean `voice`?)"),
        (
            with("language = \"English\""),
            "agents/anna.toml:3:12: language: must be two letters of ISO 639-1, such as `en`",
        ),
        (
            with("[policy.gate]\nquiet_ms = 100"),
            "agents/anna.toml:4:12: policy.gate.quiet_ms: must be from 200 to 10000, not 100",
        ),
        (
            with("[policy.gate]\nquite_ms = 100"),
            "agents/anna.toml:4:1: policy.gate.quite_ms: unknown key (did you mean `quiet_ms`?)",
        ),
        (with("[policy.gates]"), "agents/anna.toml:3:9: policy.gates: unknown key (did you mean `gate`?)"),
        (
            with("[policy.playback]\nlead_ms = 150\n[policy.turn]\nconfirm_ms = 100"),
            "agents/anna.toml:4:11: policy.playback.lead_ms: must be from 200 to 2000, not 150",
        ),
        (
            with("[policy.turn]\nconfirm_ms = 400"),
            "agents/anna.toml:4:14: policy.turn.confirm_ms: confirm_ms (400) must stay under lead_ms (400) (or a false start is heard as a hole in the agent's speech)",
        ),
        (
            with("[policy.playback]\nlead_ms = 200"),
            "agents/anna.toml:4:11: policy.playback.lead_ms: confirm_ms (200) must stay under lead_ms (200) (or a false start is heard as a hole in the agent's speech)",
        ),
        (
            with("[policy.playback]\nchunk_ms = 500"),
            "agents/anna.toml:4:12: policy.playback.chunk_ms: chunk_ms (500) must not be above lead_ms (400)",
        ),
        (with("[policy]\nturn = 3"), "agents/anna.toml:4:8: policy.turn: must be a table"),
    ] {
        let folder = Folder::new(&[("agents/anna.toml", &agent), ("tools/book.toml", TOOL)]);
        assert_mistake(
            &folder.mistakes(&[]),
            &expected
                .replace("gone.md", &folder.0.join("gone.md").display().to_string())
                .replace(&format!("{}/", folder.0.display()), ""),
        );
    }
    for (more, start) in [
        (
            "[policy.turn]\nconfirm_ms = \"x\"",
            "agents/anna.toml:4:14: policy.turn.confirm_ms: must be a whole number that fits",
        ),
        (
            "[policy.turn]\nconfirm_ms = -1",
            "agents/anna.toml:4:14: policy.turn.confirm_ms: must be a whole number that fits",
        ),
        (
            "[policy.turn]\nfloor_dbfs = -500",
            "agents/anna.toml:4:14: policy.turn.floor_dbfs: must be a whole number that fits",
        ),
        (
            "[policy.turn]\nend = \"never\"",
            "agents/anna.toml:4:7: policy.turn.end: must be one of the known words: unknown variant `never`",
        ),
    ] {
        let mistakes = Folder::new(&[("agents/anna.toml", &with(more)), ("tools/book.toml", TOOL)]).mistakes(&[]);
        assert!(mistakes.len() == 1 && mistakes[0].starts_with(start), "{mistakes:?}");
    }
}

#[test]
fn each_mistake_in_a_tool_is_told_with_its_place() {
    // What is replaced in a good tool, by what, and what is said of it.
    for (from, to, expected) in [
        (
            "description = \"Books.\"\n",
            "",
            "tools/book.toml:1:1: description: is missing (the model reads it to decide when to call the tool)",
        ),
        (
            "effect = \"keyed\"\n",
            "",
            "tools/book.toml:1:1: effect: is missing (`read`, `keyed`, `lookup` or `opaque`: what may be done when an answer is lost)",
        ),
        (
            "\"keyed\"",
            "\"kyed\"",
            "tools/book.toml:2:10: effect: must be one of `read`, `keyed`, `lookup`, `opaque` (did you mean `keyed`?)",
        ),
        (
            "\"keyed\"",
            "\"lookup\"",
            "tools/book.toml:2:10: effect: `lookup` needs a look_up request (add `[look_up]` with the `url` to ask, or use another effect class)",
        ),
        (
            "[parameters]",
            "deadline = 3\n[parameters]",
            "tools/book.toml:3:1: deadline: unknown key (did you mean `deadline_ms`?)",
        ),
        (
            "[parameters]",
            "deadline_ms = 5000\n[parameters]",
            "tools/book.toml:3:15: deadline_ms: attempt_timeout_ms (10000) is above deadline_ms (5000)",
        ),
        (
            "[parameters]",
            "intent_fields = [\"sise\"]\n[parameters]",
            "tools/book.toml:3:18: intent_fields: the parameters have no `sise` (did you mean `size`?)",
        ),
        (
            "[parameters]",
            "resource = \"t:{/sise}\"\n[parameters]",
            "tools/book.toml:3:15: resource: the parameters have no `sise` for `{/sise}` (did you mean `size`?)",
        ),
        (
            "[parameters]",
            "resource = \"t:{key}\"\n[parameters]",
            "tools/book.toml:3:12: resource: a resource takes arguments only, as `{/argument}`, not `key`",
        ),
        (
            "type = \"object\"\n",
            "",
            "tools/book.toml:3:2: parameters: must have `type = \"object\"`: arguments come by name",
        ),
        (
            "{ type = \"integer\" }",
            "{ type = \"int\" }",
            "tools/book.toml:7:17: parameters: not a JSON Schema: \"int\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            "{ type = \"string\" }",
            "{ type = \"string\", pattern = \"(\" }",
            "tools/book.toml:8:37: parameters: not a JSON Schema: \"(\" is not a \"regex\"",
        ),
        (
            "{ type = \"string\" }",
            "{ default = 2026-01-01 }",
            "tools/book.toml:8:20: parameters: JSON has no dates: put it into quotes",
        ),
        (
            "[http]",
            "[retry]\nbase_ms = 6000\n[http]",
            "tools/book.toml:10:11: retry.base_ms: base_ms (6000) is above cap_ms (5000)",
        ),
        (
            "[http]",
            "[retry]\ntries = 6\n[http]",
            "tools/book.toml:10:1: retry.tries: unknown key (known here: `base_ms`, `cap_ms`, `max_attempts`)",
        ),
        (
            "[http]",
            "[delivery]\nquiet_ms = 6\n[http]",
            "tools/book.toml:10:12: delivery.quiet_ms: must be a whole number from 200 to 10000",
        ),
        (
            "[http]\nurl = \"https://api.example.com/book\"\nallowed_hosts = [\"api.example.com\"]\n",
            "",
            "tools/book.toml:1:1: http: is missing (add `[http]` with `method` and `url`)",
        ),
        (
            "url = \"https://api.example.com/book\"\n",
            "",
            "tools/book.toml:9:2: http.url: is missing (for example `https://api.example.com/bookings/{/id}`)",
        ),
        (
            "https://api",
            "ftp://api",
            "tools/book.toml:10:8: http.url: `ftp` is not a scheme we speak: use http or https",
        ),
        (
            "allowed_hosts = [\"api.example.com\"]",
            "allowed_hosts = [\"api.example.com:1\"]",
            "tools/book.toml:10:7: http.url: the host api.example.com is not in allowed_hosts (add \"api.example.com\" to `allowed_hosts` under [http], or to [tools] in answerback.toml)",
        ),
        (
            "com/book",
            "com/book/{/sise}",
            "tools/book.toml:10:37: http.url: the parameters have no `sise` for `{/sise}` (did you mean `size`?)",
        ),
        (
            "com/book",
            "com/book/{/name}",
            "tools/book.toml:10:37: http.url: `name` may be absent, and the request needs it (make `name` required, or write `{/name?}` to leave it out when absent)",
        ),
        (
            "com/book",
            "com/book/{size}",
            "tools/book.toml:10:37: http.url: `{size}` is no place: write `{/argument}`, `{operation}`, `{key}`, `{caller}` or `{session}`",
        ),
        (
            "com/book",
            "com/book/{/size",
            "tools/book.toml:10:37: http.url: a `{` without its `}`; a brace itself is written `{{`",
        ),
        (
            "[http]",
            "[http]\nmethod = \"SEND\"",
            "tools/book.toml:10:10: http.method: must be one of `GET`, `POST`, `PUT`, `PATCH`, `DELETE`",
        ),
        (
            "[http]",
            "[http]\nmethod = \"GET\"\nbody = {}",
            "tools/book.toml:11:1: http.body: a GET request carries no body",
        ),
        (
            "[http]",
            "[http]\nbody = { a = [\"{/nam}\"] }",
            "tools/book.toml:10:16: http.body.a: the parameters have no `nam` for `{/nam}` (did you mean `name`?)",
        ),
        (
            "[http]",
            "[http]\nrefusal_statuses = [500]",
            "tools/book.toml:10:21: http.refusal_statuses: must be a whole number from 400 to 499",
        ),
        (
            "[http]",
            "[http]\nreference = \"ref\"",
            "tools/book.toml:10:13: http.reference: `ref` is not a JSON Pointer, such as `/reference`",
        ),
        (
            "[http]",
            "[http]\nheaders = { Host = \"x\" }",
            "tools/book.toml:10:20: http.headers.Host: the header `Host` is set by the request itself",
        ),
        (
            "[http]",
            "[http.secret_headers]\nAuthorization = { env = \"NOPE\" }\n[http]",
            "tools/book.toml:10:25: http.secret_headers.Authorization.env: the environment variable NOPE is not set",
        ),
        (
            "[http]",
            "[http.secret_headers]\nAuthorization = {}\n[http]",
            "tools/book.toml:10:1: http.secret_headers.Authorization: must name one source of the secret (write `env = \"NAME\"` or `file = \"path\"`)",
        ),
        (
            "[http]",
            "[look_up]\nurl = \"https://elsewhere.example/{key}\"\n[http]",
            "tools/book.toml:10:7: look_up.url: the host elsewhere.example is not in allowed_hosts (add \"elsewhere.example\" to `allowed_hosts` under [http], or to [tools] in answerback.toml)",
        ),
        (
            "[http]",
            "[look_up]\nurl = \"https://api.example.com/{key}\"\nbody = {}\n[http]",
            "tools/book.toml:11:1: look_up.body: unknown key (known here: `url`, `headers`, `secret_headers`, `result`)",
        ),
    ] {
        let tool = TOOL.replacen(from, to, 1);
        assert_ne!(tool, TOOL, "{from} is there");
        assert_mistake(
            &Folder::new(&[("agents/anna.toml", AGENT), ("tools/book.toml", &tool)]).mistakes(&[]),
            expected,
        );
    }
    let folder = Folder::new(&[("agents/anna.toml", "instructions = \"x\""), ("tools/a b.toml", TOOL)]);
    assert_mistake(
        &folder.mistakes(&[]),
        "tools/a b.toml:1:1: the file name `a b` cannot name a tool (use up to 64 letters, digits, `_` and `-`)",
    );
}
