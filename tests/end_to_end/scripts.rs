//! What the simulated model says, by what it is asked.

pub const MODEL: &str = r#"
transcripts = ["Hello, I'd like to book a table for two at nine tonight, please.", "Oh, and could we sit by the window?", "Thank you, goodbye."]
[[rules]]
instructions_contain = "Tell the caller"
say = { file = "builtin:agent_confirmation", text = "Your table for two at nine is booked. The reference is B seven." }
[[rules]]
instructions_contain = "may already have heard"
say = { file = "builtin:agent_back_booked", text = "You may have heard it: your table is booked." }
[[rules]]
instructions_contain = "Also tell the caller"
say = { file = "builtin:agent_confirmation", text = "Your table for two at nine is booked. The reference is B seven." }
[[rules]]
instructions_contain = "news from an earlier call"
say = { file = "builtin:agent_back_booked", text = "Welcome back. Your table for two at nine is booked." }
[[rules]]
instructions_contain = "Say it again"
say = { file = "builtin:agent_confirmation", text = "Your table for two at nine is booked. The reference is B seven." }
[[rules]]
instructions_contain = "not confirmed"
say = { file = "builtin:agent_acknowledge", text = "One moment please, I am sending that to the restaurant's booking system now." }
[[rules]]
after = "user"
once = true
context_contains = "book a table"
call = { name = "book_table", arguments = { party_size = 2, time = "21:00" } }
[[rules]]
after = "nothing"
nth = 1
say = { file = "builtin:agent_greeting", text = "Good evening, the Blue Door." }
[[rules]]
after = "user"
say = { file = "builtin:agent_window", text = "I will note the window seat wish." }
"#;
