//! A review in one line.

use super::{Change, Kind, Members, Review, State, Tree, Weight};

impl Review {
    /// One line: `changed: version 1.2 -> 1.3, 1 setting wider, 2 tools changed`.
    pub fn summary(&self) -> String {
        match self.state {
            State::Unchanged => "unchanged".to_owned(),
            State::New => format!("new: {}", self.offer()),
            State::Changed => format!("changed: {}", self.changes().join(", ")),
        }
    }

    /// The same with no more than says which server it is: for somebody who has said yes beforehand.
    pub fn brief(mut self) -> Review {
        self.facts.retain(|fact| ["package", "version", "image"].contains(&fact.what.as_str()));
        Review { says: Members::default(), tree: Tree::default(), items: Vec::new(), moved: Vec::new(), ..self }
    }

    fn offer(&self) -> String {
        let all = self.offers.iter().filter(|(kind, n)| *n > 0 || *kind == Kind::Tool);
        all.map(|(kind, n)| counted(*n, kind.word())).collect::<Vec<_>>().join(", ")
    }

    fn changes(&self) -> Vec<String> {
        let mut words = Vec::new();
        let facts = |weight| self.facts.iter().filter(move |fact| fact.weight == weight);
        words.extend(facts(Weight::Alarm).map(|fact| format!("{} ALONE", fact.what)));
        if !self.tree.replaced.is_empty() {
            words.push(format!("{} REPLACED", counted(self.tree.replaced.len(), "dependency")));
        }
        words.extend(facts(Weight::Wider).map(|fact| format!("{} wider", fact.what)));
        let plain = facts(Weight::Plain).filter(|fact| !self.is_told_by_the_version(&fact.what));
        words.extend(plain.map(|fact| match (fact.what.as_str(), &fact.before, &fact.now) {
            ("version", Some(was), Some(is)) => format!("version {was} -> {is}"),
            (what, ..) => what.to_owned(),
        }));
        if !self.says.is_empty() {
            let of = |word: &str| self.says.all.iter().any(|member| member.path.starts_with(word));
            words.extend(["capabilities", "instructions"].into_iter().filter(|word| of(word)).map(str::to_owned));
        }
        let tree = &self.tree;
        let dependencies = tree.added.len() + tree.removed.len() + tree.changed.len();
        if dependencies > 0 {
            words.push(counted(dependencies, "dependency"));
        }
        if tree.reordered {
            words.push("order of dependencies".to_owned());
        }
        for kind in Kind::ALL {
            words.extend(self.definition_words(kind));
        }
        if words.is_empty() {
            words.push("something that is not told apart here".to_owned());
        }
        words
    }

    /// Hashes that follow from another version say nothing in a line.
    fn is_told_by_the_version(&self, what: &str) -> bool {
        let version = self.facts.iter().any(|fact| fact.what == "version");
        version && matches!(what, "integrity" | "image" | "content")
    }

    fn definition_words(&self, kind: Kind) -> Vec<String> {
        let count = |is: fn(&Change) -> bool| self.items.iter().filter(|i| i.kind == kind && is(&i.change)).count();
        let all = [
            ("added", count(|change| matches!(change, Change::Added { .. }))),
            ("removed", count(|change| matches!(change, Change::Removed))),
            ("changed", count(|change| matches!(change, Change::Changed(_)))),
            ("only reordered", count(|change| matches!(change, Change::Reordered))),
            ("only respelled", count(|change| matches!(change, Change::Respelled))),
        ];
        let mut words: Vec<String> = all
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(how, n)| format!("{} {how}", counted(n, kind.word())))
            .collect();
        if self.moved.contains(&kind) {
            words.push(format!("order of {}s", kind.word()));
        }
        words
    }
}

fn counted(n: usize, word: &str) -> String {
    match word.strip_suffix('y') {
        _ if n == 1 => format!("1 {word}"),
        Some(stem) => format!("{n} {stem}ies"),
        None => format!("{n} {word}s"),
    }
}
