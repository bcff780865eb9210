//! The graph of modules, and its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One use of a module by another.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: String,
    pub(super) to: String,
    /// The file and line of the use.
    pub(super) place: String,
}

/// The modules in the order of `lib.rs`, and the uses between them.
#[derive(Debug)]
pub(super) struct Graph {
    modules: Vec<String>,
    /// By the positions of both modules.
    edges: BTreeMap<(usize, usize), Vec<String>>,
}

impl Graph {
    pub(super) fn new(modules: &[String]) -> Self {
        Self { modules: modules.to_vec(), edges: BTreeMap::new() }
    }

    fn position(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|name| name == module)
    }

    /// Adds a use, unless a module uses itself.
    pub(super) fn add(&mut self, Edge { from, to, place }: Edge) {
        if let (Some(from), Some(to)) = (self.position(&from), self.position(&to))
            && from != to
        {
            self.edges.entry((from, to)).or_default().push(place);
        }
    }

    pub(super) fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Returns the pairs of modules of which the first uses the second.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.edges.keys().map(|(from, to)| (&*self.modules[*from], &*self.modules[*to]))
    }

    /// Returns the modules that one module uses, in the order of their names.
    pub(super) fn uses(&self, module: &str) -> BTreeSet<&str> {
        self.edges().filter(|(from, _)| *from == module).map(|(_, to)| to).collect()
    }

    /// Returns the files and lines in which one module uses another.
    pub(super) fn places(&self, (from, to): (&str, &str)) -> &[String] {
        let key = self.position(from).zip(self.position(to));
        key.and_then(|key| self.edges.get(&key)).map_or(&[], Vec::as_slice)
    }

    /// Returns the shortest cycle through each edge, without repetition and the shortest first. Each begins and ends
    /// with the same module. Empty if and only if the graph has no cycle.
    pub(super) fn cycles(&self) -> Vec<Vec<String>> {
        let mut cycles = BTreeSet::new();
        for (from, to) in self.edges.keys() {
            if let Some(mut cycle) = self.shortest(*to, *from) {
                // Begins with the module that `lib.rs` lists first, so that equal cycles are equal.
                let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or_default();
                cycle.rotate_left(first);
                cycle.push(cycle[0]);
                cycles.insert((cycle.len(), cycle));
            }
        }
        let named = |(_, cycle): (usize, Vec<usize>)| {
            cycle.into_iter().map(|module| self.modules[module].clone()).collect()
        };
        cycles.into_iter().map(named).collect()
    }

    /// Returns the shortest path, with both ends.
    fn shortest(&self, start: usize, goal: usize) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(start, start)]);
        let mut queue = VecDeque::from([start]);
        while let Some(module) = queue.pop_front() {
            if module == goal {
                let mut path = vec![goal];
                while path[path.len() - 1] != start {
                    path.push(before[&path[path.len() - 1]]);
                }
                path.reverse();
                return Some(path);
            }
            for (_, next) in
                self.edges.range((module, 0)..=(module, usize::MAX)).map(|(key, _)| key)
            {
                if !before.contains_key(next) {
                    before.insert(*next, module);
                    queue.push_back(*next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
impl Graph {
    /// Builds a graph of modules with one letter each: `ab` is a use of `b` by `a`.
    pub(super) fn sample(modules: &str, edges: &[&str]) -> Self {
        let modules: Vec<String> = modules.chars().map(String::from).collect();
        let mut graph = Self::new(&modules);
        for edge in edges {
            let (from, to) = edge.split_at(1);
            let place = format!("{from}.rs:1");
            graph.add(Edge { from: from.to_owned(), to: to.to_owned(), place });
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::Graph;

    fn cycles(edges: &[&str]) -> Vec<String> {
        Graph::sample("abcde", edges).cycles().iter().map(|cycle| cycle.concat()).collect()
    }

    #[test]
    fn a_graph_without_cycles() {
        assert_eq!(cycles(&["ab", "ac", "bd", "cd", "de", "aa"]), [""; 0]);
    }

    #[test]
    fn cycles_are_paths_and_the_shortest_comes_first() {
        assert_eq!(cycles(&["ab", "bc", "ca", "de", "ed"]), ["ded", "abca"]);
        assert_eq!(cycles(&["cb", "bc"]), ["bcb"]);
    }

    #[test]
    fn every_edge_on_a_cycle_is_in_one_of_them() {
        assert_eq!(cycles(&["ab", "ba", "bc", "ca"]), ["aba", "abca"]);
    }

    #[test]
    fn uses_are_sorted_and_have_places() {
        let graph = Graph::sample("cba", &["cb", "ca", "ca"]);
        assert_eq!(graph.uses("c").into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(graph.places(("c", "a")), ["c.rs:1", "c.rs:1"]);
        assert_eq!(graph.places(("a", "c")), [""; 0]);
    }
}
