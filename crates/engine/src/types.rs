//! The types of values: what a command may do with an [`Object`] of its type.

pub mod list;
pub mod set;
pub mod string;

use structures::object::Object;
use structures::table::Value;

/// The type of a value, as clients know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
}

impl Type {
    /// The type of a value of the keyspace.
    pub fn of(value: &Value<'_, Object>) -> Type {
        match value {
            Value::Bytes(_) | Value::Int(_) => Type::String,
            Value::Object(object) => Type::of_object(object),
        }
    }

    /// The type of a value outside of its entry.
    pub fn of_object(object: &Object) -> Type {
        match object {
            Object::PackedList(_) | Object::List(_) => Type::List,
            Object::PackedSet(_) | Object::Set(_) => Type::Set,
            Object::BigString(_) => Type::String,
        }
    }

    /// What TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
        }
    }
}
