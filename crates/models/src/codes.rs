//! Error codes that the provider's interfaces share.

/// Matched against `code` or `type`: no retry and no new session helps until somebody acts on the account.
pub const FATAL_CODES: [&str; 5] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "invalid_api_key",
    "account_deactivated",
    "billing_hard_limit_reached",
];

/// The provider's limit of a session's length was reached.
pub const SESSION_EXPIRED: &str = "session_expired";
/// Reported when an error carries neither code nor type.
pub const UNKNOWN_CODE: &str = "unknown";

/// Whether a failure's `code` says that the next attempt will fail too.
pub fn is_fatal(code: &str) -> bool {
    FATAL_CODES.contains(&code)
}
