//! Fetches test assets: `fetch-assets NAME…`.

use anyhow::{Context, Result};
use sparkinfer_tests::assets::{ALL, Asset};

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        println!("usage: fetch-assets NAME…");
        ALL.iter()
            .for_each(|asset| println!("  {:8} {}", asset.name, asset.what));
        return Ok(());
    }
    for name in names {
        let asset = Asset::named(&name).with_context(|| format!("there is no asset {name:?}"))?;
        asset.fetch().with_context(|| format!("cannot fetch {name}"))?;
        println!("{name}: {}", asset.output);
    }
    Ok(())
}
