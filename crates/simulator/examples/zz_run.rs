//! scratch
use simulator::scenario::*;
use simulator::collective::*;
fn main() {
    let file = std::env::args().nth(1).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let s = match Scenario::parse(&text, &file) { Ok(s) => s, Err(e) => { println!("{e}"); return } };
    let mut c = match s.collective(s.seed) { Ok(s) => s, Err(e) => { println!("{e}"); return } };
    struct W(u32, u32, u32, usize);
    impl Witness for W {
        fn contribution(&mut self, r: units::Rank, _: units::OpId) -> Vec<u8> { vec![r.0 as u8; self.3] }
        fn delivered(&mut self, _: units::Rank, _: units::OpId, _: &protocol::Payload) { self.0 += 1 }
        fn failed(&mut self, r: units::Rank, o: units::OpId, c: protocol::aggregation::AbortCause) { self.1 += 1; if self.1 < 5 { println!("{r} {o} {c}") } }
    }
    let mut w = W(0, 0, 0, s.collective.contents.bytes() as usize);
    let t = c.run(s.operations, &mut w, |n| println!("op {n}"));
    println!("{:?} delivered {} failed {} of {} {:?}", t.iter().take(5).collect::<Vec<_>>(), w.0, w.1, c.ranks() * s.operations, c.counters());
}
