//! The GPUs that code can be made for.

/// A virtual architecture. PTX made for one runs, through the driver's compiler, on every later GPU; names that end in
/// `a` run on exactly that GPU and may use instructions that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Ampere (A100), and what follows it: RTX 30, RTX 40.
    Sm80,
    /// Hopper (H100, H200), and what follows it; has programmatic dependent launch, bulk copies and clusters.
    Sm90,
    /// Blackwell, RTX 50 series only, with its FP4 conversions and matrix instructions.
    Sm120a,
    /// Blackwell, GB10 (DGX Spark) only, likewise.
    Sm121a,
}

impl Arch {
    /// What an ordinary build makes: together they run on everything from Ampere on.
    pub const BASES: [Self; 2] = [Self::Sm80, Self::Sm90];
    /// Made for releases, and where the machine's GPU wants one.
    pub const SPECIAL: [Self; 2] = [Self::Sm120a, Self::Sm121a];
    /// All of them, the older first.
    pub const ALL: [Self; 4] = [Self::Sm80, Self::Sm90, Self::Sm120a, Self::Sm121a];

    /// The compiler's name for it, `sm_90`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90 => "sm_90",
            Self::Sm120a => "sm_120a",
            Self::Sm121a => "sm_121a",
        }
    }

    /// The architecture of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// The compute capability that it is named for, major and minor.
    pub fn capability(self) -> (u32, u32) {
        match self {
            Self::Sm80 => (8, 0),
            Self::Sm90 => (9, 0),
            Self::Sm120a => (12, 0),
            Self::Sm121a => (12, 1),
        }
    }

    /// The version of PTX that is written for it, as 10 × major + minor: the oldest that has the instructions in use,
    /// so that the oldest possible driver takes it.
    pub fn ptx_version(self) -> u32 {
        match self {
            Self::Sm80 => 78,
            // `st.async`.
            Self::Sm90 => 81,
            Self::Sm120a => 87,
            Self::Sm121a => 88,
        }
    }

    /// Whether its PTX runs on one GPU only.
    pub fn is_special(self) -> bool {
        Self::SPECIAL.contains(&self)
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn names_lead_back() {
        for arch in Arch::ALL {
            assert_eq!(Arch::from_name(arch.name()), Some(arch));
            assert_eq!(arch.is_special(), arch.name().ends_with('a'));
            let (major, minor) = arch.capability();
            assert!(arch.name().starts_with(&format!("sm_{major}{minor}")));
        }
        assert_eq!(Arch::from_name("sm_70"), None);
    }
}
