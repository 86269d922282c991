pub mod policy;
pub use policy::Policy;
