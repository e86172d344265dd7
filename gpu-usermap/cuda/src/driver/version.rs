//! Versions of CUDA.

use std::fmt;

/// A CUDA version as the driver counts it: 1000 × major + 10 × minor.
///
/// # Examples
/// ```
/// use gpunet_cuda::DriverVersion;
///
/// assert!(DriverVersion(13000) > DriverVersion::new(12, 8));
/// assert_eq!(DriverVersion(12080).to_string(), "12.8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(pub u32);

impl DriverVersion {
    /// Makes a version from its two parts.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major * 1000 + minor * 10)
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_and_compare_as_people_write_them() {
        assert_eq!(DriverVersion(13000).to_string(), "13.0");
        assert_eq!(DriverVersion(12080).to_string(), "12.8");
        assert!(DriverVersion::new(13, 3) > DriverVersion(13000));
    }
}
