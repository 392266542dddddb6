//! `--only`: which of its scenarios, tests or cases a bench runs.

/// The items whose names are in `only`, in their own order; all of them if that is empty.
///
/// # Errors
/// None of the items, which are called `kind`, has one of the names.
pub(crate) fn choose<T>(
    all: &'static [T],
    kind: &str,
    name: impl Fn(&T) -> &'static str,
    only: &[String],
) -> Result<Vec<&'static T>, String> {
    if let Some(unknown) = only.iter().find(|wanted| !all.iter().any(|item| name(item) == *wanted))
    {
        let names: Vec<&str> = all.iter().map(&name).collect();
        return Err(format!(
            "--only: no {kind} is called {unknown}; there are {}",
            names.join(" ")
        ));
    }
    let chosen = |item: &&T| only.is_empty() || only.iter().any(|wanted| wanted == name(item));
    Ok(all.iter().filter(chosen).collect())
}
