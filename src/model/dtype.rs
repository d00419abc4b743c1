//! Element types: their names in Zarr, numpy and safetensors, and their sizes.

use std::fmt;

/// The element type of an array. Elements in memory are little-endian and packed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Two's complement of 2, 4, 8, 16, 32 or 64 bits. 2 and 4 bits take a byte each, sign-extended.
    Int(u8),
    /// Unsigned of 2, 4, 8, 16, 32 or 64 bits. 2 and 4 bits take a byte each.
    UInt(u8),
    /// A real number.
    Float(FloatKind),
    /// A pair of reals: real part, then imaginary part.
    Complex(FloatKind),
    /// Bits without a meaning, a whole number of bytes.
    RawBits(u32),
    /// An int64 count of `scale` × `unit` since 1970-01-01; the least int64 is NaT.
    DateTime64 {
        /// The unit.
        unit: TimeUnit,
        /// Units a count, at least 1.
        scale: u32,
    },
    /// An int64 count of `scale` × `unit`; the least int64 is NaT.
    TimeDelta64 {
        /// The unit.
        unit: TimeUnit,
        /// Units a count, at least 1.
        scale: u32,
    },
    /// A fixed number of UCS-4 code points, padded with zeros.
    FixedUtf32(u32),
    /// A fixed number of bytes, padded with zeros (numpy `S`).
    FixedBytes(u32),
    /// UTF-8 text of any length.
    String,
    /// Byte strings of any length.
    Bytes,
}

/// A floating-point layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FloatKind {
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// One of the formats of 8 bits or fewer, one byte an element, by its Zarr name (`float8_e5m2` and such).
    Small(&'static str),
}

/// The one-byte float formats, by their Zarr names.
pub const SMALL_FLOATS: &[&str] = &[
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
];

impl FloatKind {
    /// Bytes an element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Small(_) => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The Zarr v3 name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Small(name) => name,
        }
    }

    /// The kind with a Zarr v3 name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "float16" => Some(Self::F16),
            "bfloat16" => Some(Self::BF16),
            "float32" => Some(Self::F32),
            "float64" => Some(Self::F64),
            _ => SMALL_FLOATS.iter().find(|s| **s == name).map(|s| Self::Small(s)),
        }
    }
}

/// A unit of numpy's datetime64 and timedelta64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TimeUnit {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Picosecond,
    Femtosecond,
    Attosecond,
    Generic,
}

impl TimeUnit {
    const CODES: &'static [(TimeUnit, &'static str)] = &[
        (Self::Year, "Y"),
        (Self::Month, "M"),
        (Self::Week, "W"),
        (Self::Day, "D"),
        (Self::Hour, "h"),
        (Self::Minute, "m"),
        (Self::Second, "s"),
        (Self::Millisecond, "ms"),
        (Self::Microsecond, "us"),
        (Self::Nanosecond, "ns"),
        (Self::Picosecond, "ps"),
        (Self::Femtosecond, "fs"),
        (Self::Attosecond, "as"),
        (Self::Generic, "generic"),
    ];

    /// numpy's code of the unit.
    pub fn code(self) -> &'static str {
        Self::CODES.iter().find(|(unit, _)| *unit == self).map_or("generic", |(_, code)| code)
    }

    /// The unit with numpy's code; `μs` is also accepted for microseconds.
    pub fn from_code(code: &str) -> Option<Self> {
        let code = if code == "μs" { "us" } else { code };
        Self::CODES.iter().find(|(_, c)| *c == code).map(|(unit, _)| *unit)
    }
}

impl DType {
    /// Bytes an element in memory, or `None` when elements vary in length.
    pub fn size_bytes(&self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int(bits) | Self::UInt(bits) => Some(usize::from(*bits).div_ceil(8)),
            Self::Float(kind) => Some(kind.size_bytes()),
            Self::Complex(kind) => Some(2 * kind.size_bytes()),
            Self::RawBits(bytes) | Self::FixedBytes(bytes) => Some(*bytes as usize),
            Self::DateTime64 { .. } | Self::TimeDelta64 { .. } => Some(8),
            Self::FixedUtf32(chars) => Some(4 * *chars as usize),
            Self::String | Self::Bytes => None,
        }
    }

    /// Bytes of the unit whose byte order matters: 1 when there is none to swap.
    pub fn word_bytes(&self) -> usize {
        match self {
            Self::Bool | Self::RawBits(_) | Self::FixedBytes(_) | Self::String | Self::Bytes => 1,
            Self::Int(bits) | Self::UInt(bits) => usize::from(*bits).div_ceil(8),
            Self::Float(kind) | Self::Complex(kind) => kind.size_bytes(),
            Self::DateTime64 { .. } | Self::TimeDelta64 { .. } => 8,
            Self::FixedUtf32(_) => 4,
        }
    }

    /// The Zarr v3 name, with the parameters of parametric types in brackets: `numpy.datetime64[10ms]`.
    pub fn name(&self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Int(bits) => format!("int{bits}"),
            Self::UInt(bits) => format!("uint{bits}"),
            Self::Float(kind) => kind.name().into(),
            Self::Complex(FloatKind::F32) => "complex64".into(),
            Self::Complex(FloatKind::F64) => "complex128".into(),
            Self::Complex(kind) => format!("complex_{}", kind.name()),
            Self::RawBits(bytes) => format!("r{}", u64::from(*bytes) * 8),
            Self::DateTime64 { unit, scale } => format!("numpy.datetime64[{}]", time_code(*unit, *scale)),
            Self::TimeDelta64 { unit, scale } => format!("numpy.timedelta64[{}]", time_code(*unit, *scale)),
            Self::FixedUtf32(chars) => format!("fixed_length_utf32[{chars}]"),
            Self::FixedBytes(bytes) => format!("null_terminated_bytes[{bytes}]"),
            Self::String => "string".into(),
            Self::Bytes => "bytes".into(),
        }
    }

    /// The `descr` of a `.npy` header, little-endian, or `None` when the format cannot hold the type.
    pub fn numpy_descr(&self) -> Option<String> {
        Some(match self {
            Self::Bool => "|b1".into(),
            Self::Int(8) => "|i1".into(),
            Self::UInt(8) => "|u1".into(),
            Self::Int(bits @ (16 | 32 | 64)) => format!("<i{}", bits / 8),
            Self::UInt(bits @ (16 | 32 | 64)) => format!("<u{}", bits / 8),
            Self::Float(FloatKind::F16) => "<f2".into(),
            Self::Float(FloatKind::F32) => "<f4".into(),
            Self::Float(FloatKind::F64) => "<f8".into(),
            Self::Complex(FloatKind::F32) => "<c8".into(),
            Self::Complex(FloatKind::F64) => "<c16".into(),
            Self::DateTime64 { unit, scale } => format!("<M8{}", numpy_time(*unit, *scale)),
            Self::TimeDelta64 { unit, scale } => format!("<m8{}", numpy_time(*unit, *scale)),
            Self::Int(_)
            | Self::UInt(_)
            | Self::Float(FloatKind::BF16 | FloatKind::Small(_))
            | Self::Complex(_)
            | Self::RawBits(_)
            | Self::FixedUtf32(_)
            | Self::FixedBytes(_)
            | Self::String
            | Self::Bytes => return None,
        })
    }

    /// The name in a safetensors header, or `None` when the format cannot hold the type.
    ///
    /// Source: the `Dtype` enum of the safetensors format (0.7).
    pub fn safetensors_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Bool => "BOOL",
            Self::Int(8) => "I8",
            Self::Int(16) => "I16",
            Self::Int(32) => "I32",
            Self::Int(64) => "I64",
            Self::UInt(8) => "U8",
            Self::UInt(16) => "U16",
            Self::UInt(32) => "U32",
            Self::UInt(64) => "U64",
            Self::Float(FloatKind::F16) => "F16",
            Self::Float(FloatKind::BF16) => "BF16",
            Self::Float(FloatKind::F32) => "F32",
            Self::Float(FloatKind::F64) => "F64",
            Self::Float(FloatKind::Small("float8_e4m3fn")) => "F8_E4M3",
            Self::Float(FloatKind::Small("float8_e5m2")) => "F8_E5M2",
            Self::Float(FloatKind::Small("float8_e8m0fnu")) => "F8_E8M0",
            Self::Complex(FloatKind::F32) => "C64",
            Self::Int(_)
            | Self::UInt(_)
            | Self::Float(FloatKind::Small(_))
            | Self::Complex(_)
            | Self::RawBits(_)
            | Self::DateTime64 { .. }
            | Self::TimeDelta64 { .. }
            | Self::FixedUtf32(_)
            | Self::FixedBytes(_)
            | Self::String
            | Self::Bytes => return None,
        })
    }
}

/// `ms`, or `10ms` when a count is more than one unit.
fn time_code(unit: TimeUnit, scale: u32) -> String {
    if scale == 1 { unit.code().into() } else { format!("{scale}{}", unit.code()) }
}

/// `[ms]`, or nothing for the generic unit, as numpy writes it.
fn numpy_time(unit: TimeUnit, scale: u32) -> String {
    if unit == TimeUnit::Generic { String::new() } else { format!("[{}]", time_code(unit, scale)) }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
