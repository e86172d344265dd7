fn main(){
 use gpunet_diagnose::selftest::*; use gpunet_diagnose::selftest::device::Name;
 run(Name::Cpu, &of_device(Name::Cpu,false), &[], |_|{}, |c| println!("{:?} {} {}", c.status, c.id, c.evidence));
 println!("{}", serde_json::to_string_pretty(&gpunet_diagnose::libraries::Libraries::ask()).unwrap());
}
