//! What each level of a hierarchy sends.

use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};
use sparse_core::SparseVec;
use sparse_core::wire::HEADER;
use testkit::run_world;
use testkit::support::{Shape, world};

use super::model::*;
use crate::worlds::local_world;

#[test]
fn every_level_of_a_hierarchy_costs_what_it_documents() {
    // The colors of nine ranks: groups of equal sizes, of three sizes, one group, each alone.
    for colors in
        [[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 1, 2, 2, 2, 1, 2, 2], [3; 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]]
    {
        let mut groups = vec![Vec::new(); 9];
        (0..9).for_each(|rank| groups[colors[rank]].push(rank));
        groups.retain(|group| !group.is_empty());
        groups.sort();
        let shards = groups.iter().map(Vec::len).min().unwrap();
        for dim in [0, 5, 400] {
            let inputs: Vec<SparseVec<f32>> = world(Shape::Random, 9, dim as u64, 14);
            let support = |rank: usize| -> Support { inputs[rank].indices().iter().copied().collect() };
            let cut = |place: usize| dim * place.min(shards) / shards;
            let length = |place: usize| cut(place + 1) - cut(place);
            let within = |support: &Support, place: usize| -> Support {
                support
                    .range(cut(place) as u32..cut(place + 1) as u32)
                    .map(|at| at - cut(place) as u32)
                    .collect()
            };
            let union =
                |members: &[usize]| -> Support { members.iter().flat_map(|rank| support(*rank)).collect() };
            let all = union(&(0..9).collect::<Vec<_>>());
            // The k largest of all ranks are the first k, as in the test of the global top-k.
            let k = 3.min(dim);
            let largest = sparse(&(0..k as u32).collect(), dim);
            let rows: Vec<f32> = (0..dim).map(|at| (1000 - at) as f32).collect();
            let first = SparseVec::from_dense(&rows).unwrap();

            let mut expected = vec![[Cost::default(); 3]; 9];
            for (group, members) in groups.iter().enumerate() {
                for (place, rank) in members.iter().enumerate() {
                    let [dense, sums, top] = &mut expected[*rank];
                    let add = |cost: &mut Cost, of: Cost| {
                        cost.messages += of.messages;
                        cost.bytes += of.bytes;
                    };
                    for other in (0..members.len()).filter(|other| *other != place) {
                        dense.send(VALUE * length(other));
                        sums.send(sparse(&within(&support(*rank), other), length(other)));
                    }
                    if place < shards {
                        let shard = |members: &Vec<usize>| within(&union(members), place);
                        let supports: Vec<_> = groups.iter().map(shard).collect();
                        let shard = World { dim: length(place), supports };
                        if groups.len() > 1 {
                            add(dense, dense_ring(&shard).0[group]);
                        }
                        add(sums, topk_allgather(&shard).0[group]);
                    }
                    let places = 0..members.len();
                    let blocks: Vec<_> = places.clone().map(|place| HEADER + VALUE * length(place)).collect();
                    bruck(dense, place, &blocks);
                    let block = |place| match place < shards {
                        true => HEADER + shorter(&within(&all, place), length(place)),
                        false => HEADER + sparse(&Support::new(), 0),
                    };
                    bruck(sums, place, &places.map(block).collect::<Vec<_>>());
                    add(top, gtopk_tree(members.len(), largest).0[place]);
                    if place == 0 {
                        add(top, gtopk_tree(groups.len(), largest).0[group]);
                    }
                    add(top, broadcast(members.len(), 0, largest).0[place]);
                    // The check.
                    expected[*rank].iter_mut().for_each(|cost| cost.send(0));
                }
            }
            let counted = run_world(local_world(9), |transport| {
                let (inputs, first) = (&inputs, &first);
                async move {
                    let communicator = Communicator::new(transport);
                    let rank = communicator.rank().index();
                    let hierarchy = communicator.hierarchy(colors[rank] as u32).await.unwrap();
                    let mut counted = Vec::new();
                    let mut before = hierarchy.communicator().traffic();
                    for which in 0..3 {
                        match which {
                            0 => {
                                let (input, mut sum) = (inputs[rank].to_dense(), vec![0.0; dim]);
                                hierarchy
                                    .allreduce_dense(&input, &mut sum, DenseAlgorithm::Ring)
                                    .await
                                    .unwrap();
                            }
                            1 => {
                                let all = SparseAlgorithm::TopkAllgather;
                                drop(hierarchy.allreduce(&inputs[rank], &all).await.unwrap());
                            }
                            _ => {
                                let tree = GtopkAlgorithm::Tree;
                                drop(hierarchy.gtopk(first, k, tree, PutBack::Conserving).await.unwrap());
                            }
                        }
                        let after = hierarchy.communicator().traffic();
                        counted.push(Cost {
                            messages: after.messages_sent - before.messages_sent,
                            bytes: after.bytes_sent - before.bytes_sent,
                        });
                        before = after;
                    }
                    counted
                }
            });
            for (rank, counted) in counted.iter().enumerate() {
                assert_eq!(*counted, expected[rank], "{groups:?}, N = {dim}, rank {rank}");
            }
        }
    }
}
