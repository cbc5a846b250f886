//! Fetches test assets: `fetch-assets NAME…`, each an asset or a group of them.

use anyhow::{Context, Result};
use sparkinfer_tests::assets::{ALL, GROUPS, named};

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        println!("usage: fetch-assets NAME…");
        ALL.iter()
            .for_each(|asset| println!("  {:16} {}", asset.name, asset.what));
        for (name, assets) in GROUPS {
            let assets: Vec<_> = assets.iter().map(|asset| asset.name).collect();
            println!("  {name:16} all of {}", assets.join(", "));
        }
        return Ok(());
    }
    for name in names {
        for asset in named(&name).with_context(|| format!("there is no asset {name:?}"))? {
            asset.fetch().with_context(|| format!("cannot fetch {}", asset.name))?;
            println!("{}: {}", asset.name, asset.output);
        }
    }
    Ok(())
}
